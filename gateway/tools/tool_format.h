// How models write calls of tools and reasoning, and which way a model has.
//
// Thread: plain values and pure functions. Failure: none; a model whose way is not known here has
// ToolFormat::Unknown, and requests with tools are refused for it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::gateway {

enum class ToolFormat : std::uint8_t {
  Off,      // switched off in the configuration
  Unknown,  // the template has tools, but in no way that is known here
  Hermes,   // <tool_call>{"name": …, "arguments": {…}}</tool_call>
  Llama3,   // {"name": …, "parameters": {…}}, alone or after <|python_tag|>
  Mistral,  // [TOOL_CALLS][{"name": …, "arguments": {…}}, …] or [TOOL_CALLS]name[ARGS]{…}
  Gemma     // {"name": …, "parameters": {…}}, alone, in a list, or in a fenced block
};

// What surrounds the calls of a format.
struct CallSyntax {
  std::span<const std::string_view> openers;  // begin calls anywhere in the text
  std::string_view closer;                    // may follow a call; empty: nothing does
  bool bare = false;                          // calls may also begin the answer without an opener
  bool list = false;                          // calls may stand in a JSON array
  bool named = false;                         // name[ARGS]{…} after an opener
  char separator = 0;                         // between calls that share an opener; 0: white space
  bool sure_openers = true;                   // they stand before calls alone, in no other text
};

// REQUIRES: not Off or Unknown.
const CallSyntax& syntax_of(ToolFormat format);

struct ModelFormat {
  ToolFormat tools = ToolFormat::Unknown;
  bool template_has_tools = false;  // else the prompt must tell of them (tool_prompt.h)
  bool has_reasoning = false;       // <think> tags
  bool one_call = false;            // the template refuses answers with several calls
  // Special tokens that are part of calls or of reasoning: their text must be seen.
  std::vector<TokenId> tool_tokens;
  std::vector<TokenId> reasoning_tokens;
};

// `chat_template`: null when the model has none.
ModelFormat detect_format(const engine::TokenizerSpec& spec,
                          const engine::ChatTemplate* chat_template);

// The configuration's model.tool_parser and model.reasoning_parser over what was detected.
struct FormatOverride {
  std::string_view tool_parser = "auto";
  std::string_view reasoning_parser = "auto";
};
ToolFormat tool_format_of(const ModelFormat& detected, FormatOverride choice);
bool has_reasoning(const ModelFormat& detected, FormatOverride choice);

// Whether a prompt ends inside of reasoning, with a <think> tag that its template has opened.
bool opens_reasoning(const engine::Tokenizer& tokenizer, std::span<const TokenId> prompt);

}  // namespace baton::gateway
