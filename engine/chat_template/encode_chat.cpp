#include "engine/chat_template/encode_chat.h"

#include <fmt/format.h>

namespace baton::engine {

Result<std::vector<TokenId>> encode_chat(const ChatTemplate& chat_template,
                                         const Tokenizer& tokenizer,
                                         ChatTemplateInput input,
                                         std::size_t max_tokens) {
  const TokenizerSpec& spec = tokenizer.spec();
  const auto text_of = [&](TokenId id) {
    return id >= 0 ? spec.tokens[static_cast<std::size_t>(id)] : std::string();
  };
  input.bos_token = text_of(spec.bos);
  input.eos_token = text_of(spec.eos);
  BATON_ASSIGN(const std::vector<PromptPiece> pieces, chat_template.render(input));
  std::size_t bytes = 0;
  for (const PromptPiece& piece : pieces) {
    bytes += piece.text.size();
  }
  if (const std::size_t least = tokenizer.least_tokens(bytes); least > max_tokens) {
    return fail(ErrorCode::ContextTooLong, fmt::format("at least {}", least));
  }
  const bool has_bos = !input.bos_token.empty() && !pieces.empty() &&
                       pieces.front().special_allowed &&
                       pieces.front().text.starts_with(input.bos_token);
  return tokenizer.encode(pieces, !has_bos);
}

}  // namespace baton::engine
