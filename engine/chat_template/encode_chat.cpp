#include "engine/chat_template/encode_chat.h"

#include <fmt/format.h>

namespace baton::engine {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Cuts what a template puts behind the last message: its end mark, and what may follow that.
Status end_with(std::string_view content, std::vector<PromptPiece>& pieces) {
  const std::string_view wanted = trimmed(content);
  while (!pieces.empty()) {
    const std::string_view text = trimmed(pieces.back().text);
    if (!pieces.back().special_allowed && !text.empty() && !wanted.empty() &&
        wanted.ends_with(text)) {
      return {};
    }
    pieces.pop_back();
  }
  return fail(
      ErrorCode::InvalidArgument,
      "continue_final_message: the last message has no text that the prompt could end with");
}

}  // namespace

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
  const bool goes_on = input.continue_final_message;
  const std::string last =
      goes_on && !input.messages.empty() ? input.messages.back().content : std::string();
  const std::string bos = input.bos_token;
  BATON_ASSIGN(std::vector<PromptPiece> pieces, chat_template.render(std::move(input)));
  if (goes_on) {
    BATON_TRY(end_with(last, pieces));
  }
  std::size_t bytes = 0;
  for (const PromptPiece& piece : pieces) {
    bytes += piece.text.size();
  }
  if (const std::size_t least = tokenizer.least_tokens(bytes); least > max_tokens) {
    return fail(ErrorCode::ContextTooLong, fmt::format("at least {}", least));
  }
  const bool has_bos = !bos.empty() && !pieces.empty() && pieces.front().special_allowed &&
                       pieces.front().text.starts_with(bos);
  return tokenizer.encode(pieces, !has_bos);
}

}  // namespace baton::engine
