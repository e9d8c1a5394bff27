// Chat templates: an interpreter of the part of Jinja2 that model templates use, and the built-in
// templates of families whose files bring none (gemma).
// Source: Jinja2's template language; behaviour is compared with the jinja2 package in the tests.
//
// Thread: const after building, usable from many threads. Failure: a template with a syntax or
// run-time error gives InvalidArgument with line and sentence, also for the template's own
// `raise_exception`; work and output are bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {

struct ChatMessage {
  std::string role;
  std::string content;
  std::string name;        // may be empty
  std::string extra_json;  // an object with further fields (tool_calls, …), or empty
};

struct ChatTemplateInput {
  std::vector<ChatMessage> messages;
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // encode_chat: the prompt ends with the last message's text
  std::string tools_json;               // an array, or empty
  std::string kwargs_json;              // chat_template_kwargs: an object, or empty
  std::string bos_token;
  std::string eos_token;
  std::int64_t unix_seconds = 0;  // the caller's clock, for templates that print the date (UTC)
};

class ChatTemplate {
 public:
  // An empty `source` takes the built-in template of `architecture`, or fails with NotFound.
  static Result<std::unique_ptr<const ChatTemplate>> create(std::string source,
                                                            std::string_view architecture);
  virtual ~ChatTemplate() = default;
  // Pieces in order; text that came from a message is marked as unable to be a special token.
  virtual Result<std::vector<PromptPiece>> render(ChatTemplateInput input) const = 0;
};

}  // namespace baton::engine
