// Helpers of the template tests.
#pragma once

#include <string>
#include <vector>

#include "engine/chat_template/chat_template.h"

namespace baton::engine {

inline std::string joined(const std::vector<PromptPiece>& pieces) {
  std::string out;
  for (const PromptPiece& piece : pieces) {
    out += piece.text;
  }
  return out;
}

// The text that may hold special tokens; the rest as one "_" a piece.
inline std::string allowed_text(const std::vector<PromptPiece>& pieces) {
  std::string out;
  for (const PromptPiece& piece : pieces) {
    out += piece.special_allowed ? piece.text : "_";
  }
  return out;
}

inline Result<std::vector<PromptPiece>> render(const std::string& source,
                                               const ChatTemplateInput& input = {}) {
  BATON_ASSIGN(const auto made, ChatTemplate::create(source, "llama"));
  return made->render(input);
}

}  // namespace baton::engine
