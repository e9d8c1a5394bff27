// What both kinds of tokenizers share: the parts of a prompt are joined, tokens that stand for
// themselves are cut out, and the text between them goes to the kind's own `encode_text`.
// Invalid UTF-8 in a text is replaced by U+FFFD before anything else.
//
// Thread: const after building. Failure: see tokenizer.h.
#pragma once

#include <string>
#include <vector>

#include "engine/tokenizer/special_scanner.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {

class TokenizerBase : public Tokenizer {
 public:
  explicit TokenizerBase(TokenizerSpec spec);

  const TokenizerSpec& spec() const final { return spec_; }
  std::size_t vocab_size() const final { return spec_.tokens.size(); }
  std::vector<TokenId> encode(std::string_view text,
                              bool special_allowed,
                              bool add_bos) const final;
  std::vector<TokenId> encode(std::span<const PromptPiece> pieces, bool add_bos) const final;
  std::string_view token_bytes(TokenId id, bool with_special) const final;
  std::size_t least_tokens(std::size_t bytes) const final { return bytes / longest_; }
  std::span<const TokenId> stop_tokens() const final { return stop_tokens_; }

 protected:
  // Appends the tokens of `text`, which holds no token that stands for itself and is not empty.
  // `after_special`: it starts the prompt or follows such a token; with `space_prefix_once` only
  // the start counts.
  virtual void encode_text(std::string_view text,
                           bool after_special,
                           std::vector<TokenId>& out) const = 0;

  // Gives every token its bytes in running text. `shrink`: bytes of text that may become one byte
  // before it is tokenized. REQUIRES: called once, with one entry a token.
  void set_bytes(const std::vector<std::string>& bytes, std::size_t shrink = 1);
  TokenKind kind(TokenId id) const { return kinds_[static_cast<std::size_t>(id)]; }
  // True for tokens that merges may build from plain text.
  bool is_mergeable(TokenId id) const {
    return kind(id) == TokenKind::Normal || kind(id) == TokenKind::UserDefined ||
           kind(id) == TokenKind::Unused;
  }

 private:
  void encode_joined(std::string_view text,
                     std::span<const TextRange> allowed,
                     bool add_bos,
                     std::vector<TokenId>& out) const;

  TokenizerSpec spec_;
  std::vector<TokenKind> kinds_;  // one a token; turn markers count as control tokens
  std::vector<bool> strips_left_, strips_right_;  // one a token, or none at all
  std::vector<TokenId> stop_tokens_;
  SpecialScanner scanner_;
  std::size_t longest_ = 4;  // bytes of text in a token; an unknown character has up to 4
  std::string bytes_;        // the bytes of all tokens in a row
  std::vector<std::uint32_t> byte_starts_;  // of each token in bytes_, and the end
};

}  // namespace baton::engine
