// SentencePiece-style BPE (llama and gemma models): spaces become "▁", neighbours merge to the
// token of the highest score, the leftmost of equals; a character without a token becomes its
// bytes' tokens. Control and byte tokens are never built by merging, so text cannot forge them.
//
// Whole texts are one word here. To keep that fast a text is cut between any two characters that
// stand side by side in no token: no merge could reach across, so this changes nothing.
//
// Thread: const after building. Failure: `create` names the field that is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/tokenizer/text_index.h"
#include "engine/tokenizer/tokenizer_base.h"

namespace baton::engine {

// Pre-tokenizer of specs whose space prefix is left out where a text has a space already.
inline constexpr std::string_view kMetaspace = "metaspace";

// The pairs of characters that stand side by side in some token. May take others for such pairs.
class NeighbourSet {
 public:
  void reserve(std::size_t pairs);
  void add(char32_t left, char32_t right);
  bool may_hold(char32_t left, char32_t right) const {
    const std::size_t bit = place(left, right);
    return ((bits_[bit >> 6] >> (bit & 63)) & 1) != 0;
  }

 private:
  std::size_t place(char32_t left, char32_t right) const {
    return (((std::uint64_t{left} << 21) ^ right) * 0x9E3779B97F4A7C15ULL) >> shift_;
  }
  std::vector<std::uint64_t> bits_{0};
  int shift_ = 58;
};

class SentencePieceBpe final : public TokenizerBase {
 public:
  static Result<std::unique_ptr<const Tokenizer>> create(TokenizerSpec spec);

 protected:
  void encode_text(std::string_view text,
                   bool after_special,
                   std::vector<TokenId>& out) const override;

 private:
  explicit SentencePieceBpe(TokenizerSpec spec);
  Status build();
  void merge_word(std::string_view word, std::vector<TokenId>& out) const;
  void merge_long(std::string_view word, std::vector<TokenId>& out) const;
  void append_symbol(std::string_view symbol, std::vector<TokenId>& out) const;
  float score(TokenId id) const { return spec().scores[static_cast<std::size_t>(id)]; }

  TextIndex tokens_;            // tokens that merging may build
  std::vector<bool> is_whole_;  // a word of the token's text becomes just this token
  std::array<TokenId, 256> byte_tokens_{};
  NeighbourSet neighbours_;
};

}  // namespace baton::engine
