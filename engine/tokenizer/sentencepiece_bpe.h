// SentencePiece-style BPE (llama and gemma models): spaces become "▁", neighbours merge to the
// token of the highest score, the leftmost of equals; a character without a token becomes its
// bytes' tokens. Control and byte tokens are never built by merging, so text cannot forge them.
//
// Whole texts are one word here. To keep that fast it is cut where no token of the vocabulary
// could reach across, which changes nothing: before a "▁" whose left neighbour stands before "▁" in
// no token.
//
// Thread: const after building. Failure: `create` names the field that is wrong.
#pragma once

#include <array>
#include <memory>
#include <unordered_set>

#include "engine/tokenizer/text_index.h"
#include "engine/tokenizer/tokenizer_base.h"

namespace baton::engine {

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
  bool is_cut(std::string_view text, std::size_t at) const;
  void merge_word(std::string_view word, std::vector<TokenId>& out) const;
  void merge_long(std::string_view word, std::vector<TokenId>& out) const;
  void append_symbol(std::string_view symbol, std::vector<TokenId>& out) const;
  float score(TokenId id) const { return spec().scores[static_cast<std::size_t>(id)]; }

  TextIndex tokens_;            // tokens that merging may build
  std::vector<bool> is_whole_;  // a word of the token's text becomes just this token
  std::array<TokenId, 256> byte_tokens_{};
  std::unordered_set<char32_t> before_space_;  // characters that stand before "▁" in some token
};

}  // namespace baton::engine
