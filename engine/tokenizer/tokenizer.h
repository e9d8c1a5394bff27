// Text to token ids and back, exactly as the model was trained: byte-level BPE (gpt2 models with
// their pre-tokenizer) and SentencePiece-style BPE (llama, gemma). Sources: GGUF tokenizer
// metadata; Sennrich et al. 2016 (BPE); the GPT-2 byte alphabet.
//
// A tokenizer is built from a TokenizerSpec, which a node reads from its model file and a gateway
// receives over the wire as bytes (`serialize`/`parse`: foreign, bounds-checked).
//
// Thread: const after building, usable from many threads at once. Failure: building names the
// field; encoding cannot fail; decoding an id outside the vocabulary gives an empty string.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"

namespace baton::engine {

enum class TokenKind : std::uint8_t {
  Normal = 1,
  Unknown = 2,
  Control = 3,
  UserDefined = 4,
  Unused = 5,
  Byte = 6
};

// Everything a gateway needs to serve a model: vocabulary, merges, flags, chat template.
struct TokenizerSpec {
  std::string model;          // gpt2 (byte-level BPE), llama (SentencePiece BPE)
  std::string pre_tokenizer;  // smollm, llama-bpe, qwen2, gpt-2, default …
  std::vector<std::string> tokens;
  std::vector<float> scores;  // SentencePiece only
  std::vector<TokenKind> kinds;
  std::vector<std::string> merges;  // byte-level BPE only: "left right"
  TokenId bos = -1;                 // -1: none
  TokenId eos = -1;
  TokenId eot = -1;  // end of turn, beside eos
  TokenId unknown = -1;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = true;
  bool space_prefix_once = false;  // only where a text begins, not after each special token
  // Tokens found in text that take the white space before or after them along.
  std::vector<TokenId> strip_left;
  std::vector<TokenId> strip_right;
  std::vector<TokenId> more_stops;  // end a generation, beside eos and eot
  std::string chat_template;        // empty: the family's built-in one
  std::string architecture;

  std::string serialize() const;
  static Result<TokenizerSpec> parse(std::string_view bytes);
  std::uint64_t hash() const;
};

// A piece of a prompt: template text may hold special tokens, a user's text never can.
struct PromptPiece {
  std::string text;
  bool special_allowed = false;
};

class Tokenizer {
 public:
  static Result<std::unique_ptr<const Tokenizer>> create(TokenizerSpec spec);
  virtual ~Tokenizer() = default;

  virtual const TokenizerSpec& spec() const = 0;
  virtual std::size_t vocab_size() const = 0;
  // `special_allowed`: text like "<|im_end|>" becomes the control token. BOS is added when
  // `add_bos` and the spec says so.
  virtual std::vector<TokenId> encode(std::string_view text,
                                      bool special_allowed,
                                      bool add_bos) const = 0;
  // The pieces are tokenized as one text, but special tokens are found only where allowed.
  virtual std::vector<TokenId> encode(std::span<const PromptPiece> pieces, bool add_bos) const = 0;
  // Bytes of one token in running text; control tokens give nothing unless `with_special`.
  virtual std::string_view token_bytes(TokenId id, bool with_special) const = 0;
  // No text of this many bytes becomes fewer tokens: tells what is too long without tokenizing it.
  virtual std::size_t least_tokens(std::size_t bytes) const = 0;
  // Tokens that end a generation: eos, eot and the like.
  virtual std::span<const TokenId> stop_tokens() const = 0;
};

// Turns a stream of tokens into text that is always whole UTF-8: an incomplete tail is held back.
class Detokenizer {
 public:
  // `shown`: special tokens whose text comes anyhow; they must outlive the detokenizer.
  explicit Detokenizer(const Tokenizer& tokenizer,
                       bool with_special = false,
                       std::span<const TokenId> shown = {});
  // Text that became complete with this token.
  std::string push(TokenId id);
  // What is left at the end; broken bytes become U+FFFD.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool with_special_;
  std::span<const TokenId> shown_;
  bool at_start_ = true;
  std::string pending_;
};

}  // namespace baton::engine
