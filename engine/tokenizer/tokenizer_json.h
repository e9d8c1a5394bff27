// A TokenizerSpec from the files of a Hugging Face folder: tokenizer.json and what
// tokenizer_config.json adds. What the spec cannot say is refused: a tokenizer that differs in one
// word gives answers that look right.
//
// Read: BPE models, byte-level (with the pre-tokenizers of the known families) and
// SentencePiece-style (spaces as "▁", byte fallback).
// Thread: pure functions. Failure: InvalidModel with the file and the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {

struct HfTokenizerFiles {
  std::string folder;                        // for messages
  std::string tokenizer;                     // the text of tokenizer.json
  std::optional<std::string> config;         // of tokenizer_config.json
  std::optional<std::string> chat_template;  // of chat_template.jinja
  std::string architecture;                  // as the forward passes call it
  std::uint64_t vocab_size = 0;              // rows of the embedding; tokens beyond are left out
  std::vector<std::uint64_t> eos_ids;        // of generation_config.json or config.json
};

Result<TokenizerSpec> read_tokenizer_json(const HfTokenizerFiles& files);

}  // namespace baton::engine
