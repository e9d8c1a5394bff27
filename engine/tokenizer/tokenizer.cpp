#include "engine/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "engine/tokenizer/byte_bpe.h"
#include "engine/tokenizer/sentencepiece_bpe.h"

namespace baton::engine {

Result<std::unique_ptr<const Tokenizer>> Tokenizer::create(TokenizerSpec spec) {
  if (spec.tokens.empty()) {
    return fail(ErrorCode::InvalidModel, "the tokenizer has no tokens (tokenizer.ggml.tokens)");
  }
  if (!spec.kinds.empty() && spec.kinds.size() != spec.tokens.size()) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("tokenizer.ggml.token_type has {} entries, tokens {}",
                            spec.kinds.size(),
                            spec.tokens.size()));
  }
  const std::pair<std::string_view, TokenId> ids[] = {
      {"bos", spec.bos}, {"eos", spec.eos}, {"eot", spec.eot}, {"unknown", spec.unknown}};
  for (const auto& [name, id] : ids) {
    if (id < -1 || id >= static_cast<std::int64_t>(spec.tokens.size())) {
      return fail(
          ErrorCode::InvalidModel,
          fmt::format(
              "the {} token {} is outside the vocabulary of {}", name, id, spec.tokens.size()));
    }
  }
  if (spec.model == "gpt2") {
    return ByteBpe::create(std::move(spec));
  }
  if (spec.model == "llama") {
    return SentencePieceBpe::create(std::move(spec));
  }
  return fail(
      ErrorCode::InvalidModel,
      fmt::format("unknown tokenizer model '{}' (tokenizer.ggml.model); known are: gpt2 llama",
                  spec.model));
}

}  // namespace baton::engine
