// Byte-level BPE (gpt2 models): the pre-tokenizer cuts the text into words; a word that is a token
// is taken whole when merging would give just that; all others merge byte by byte, lowest rank
// first, the leftmost of equals. Bytes that have no token are left out, as in the `tokenizers`
// package. Sources: Sennrich et al. 2016; the GPT-2 byte alphabet.
//
// Thread: const after building. Failure: `create` names the field that is wrong.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <memory>

#include "engine/tokenizer/nfc.h"
#include "engine/tokenizer/pre_tokenizer.h"
#include "engine/tokenizer/text_index.h"
#include "engine/tokenizer/tokenizer_base.h"

namespace baton::engine {

// (left id, right id) → rank and merged id: open addressing, two thirds full at most.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    TokenId id;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  explicit MergeTable(std::size_t expected);
  // The first merge given for a pair stays.
  void add(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key = ~0ULL;
    Merge merge{kNone, -1};
  };
  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;
  int shift_;
};

class ByteBpe final : public TokenizerBase {
 public:
  static Result<std::unique_ptr<const Tokenizer>> create(TokenizerSpec spec);

 protected:
  void encode_text(std::string_view text,
                   bool after_special,
                   std::vector<TokenId>& out) const override;

 private:
  // Tokens that merge in place; longer words merge through a heap.
  static constexpr std::size_t kShortWord = 64;
  struct ShortWord {
    std::array<TokenId, kShortWord> ids{};
    std::array<MergeTable::Merge, kShortWord> merges{};  // of ids[i] and ids[i + 1]
    std::size_t count = 0;
  };

  ByteBpe(TokenizerSpec spec, PreTokenizer pre_tokenizer);
  Status build();
  void encode_words(std::string_view text, std::vector<TokenId>& out) const;
  void merge_word(std::string_view word, std::vector<TokenId>& out) const;
  void merge_short(ShortWord& part, std::vector<TokenId>& out) const;
  void merge_long(std::vector<TokenId>& ids) const;

  PreTokenizer pre_tokenizer_;
  Nfc nfc_;
  std::array<TokenId, 256> byte_tokens_{};
  MergeTable merges_;
  std::vector<MergeTable::Merge> byte_merges_;  // of two bytes' tokens, at first * 256 + second
  std::bitset<256 * 256> joins_;  // some merge has these bytes at the end of left, begin of right
  TextIndex words_;               // tokens that a word of the same bytes becomes
};

}  // namespace baton::engine
