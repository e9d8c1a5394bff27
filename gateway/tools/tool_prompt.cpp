#include "gateway/tools/tool_prompt.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "common/json/json_escape.h"
#include "gateway/tools/answer_text.h"

namespace baton::gateway {
namespace {

using engine::ChatMessage;

struct PromptWords {
  std::string_view before;     // of one call
  std::string_view arguments;  // the key that holds them
  std::string_view after;
};

PromptWords prompt_words(ToolFormat format) {
  switch (format) {
    case ToolFormat::Llama3:
    case ToolFormat::Gemma:
      return {"", "parameters", ""};
    case ToolFormat::Mistral:
      return {"[TOOL_CALLS][", "arguments", "]"};
    default:
      return {"<tool_call>\n", "arguments", "\n</tool_call>"};
  }
}

std::string call_text(const PromptWords& words, std::string_view name, std::string_view arguments) {
  std::string out{words.before};
  out += "{\"name\": ";
  append_json_string(out, name);
  fmt::format_to(
      std::back_inserter(out), ", \"{}\": {}}}{}", words.arguments, arguments, words.after);
  return out;
}

std::string instructions(const PromptWords& words, const ToolRequest& tools) {
  std::string out =
      "You can call functions to help with the user's request. These functions are there:\n"
      "<tools>\n";
  for (const FunctionTool& tool : tools.tools) {
    out += tool.json + "\n";
  }
  out += "</tools>\nTo call one, answer with its name and its arguments as JSON, like this:\n" +
         call_text(words, "name-of-the-function", "{\"name-of-an-argument\": \"value\"}") +
         "\nThe results come in the next message. Without need of a function, answer in plain "
         "words.";
  return out;
}

std::string minified(simdjson::dom::element value) {
  return simdjson::minify(value);
}

// The calls of an assistant's message, each in a line of its own.
std::string calls_text(const PromptWords& words, simdjson::dom::element extra) {
  std::string out;
  simdjson::dom::array calls;
  if (extra["tool_calls"].get(calls) != simdjson::SUCCESS) {
    return out;
  }
  for (const simdjson::dom::element call : calls) {
    std::string_view name;
    simdjson::dom::element arguments;
    if (call["function"]["name"].get(name) == simdjson::SUCCESS &&
        call["function"]["arguments"].get(arguments) == simdjson::SUCCESS) {
      out += out.empty() ? "" : "\n";
      out += call_text(words, name, minified(arguments));
    }
  }
  return out;
}

std::string calls_with_short_ids(simdjson::dom::array calls) {
  std::string out;
  for (const simdjson::dom::element call : calls) {
    simdjson::dom::object object;
    if (call.get(object) != simdjson::SUCCESS) {
      continue;
    }
    out += out.empty() ? "[{" : ",{";
    bool first = true;
    for (const auto field : object) {
      std::string_view id;
      out += std::exchange(first, false) ? "" : ",";
      append_json_string(out, field.key);
      out += ':';
      if (field.key == "id" && field.value.get(id) == simdjson::SUCCESS) {
        append_json_string(out, short_call_id(id));
      } else {
        out += minified(field.value);
      }
    }
    out += '}';
  }
  return out + ']';
}

}  // namespace

void write_tools_as_text(ToolFormat format,
                         const ToolRequest& tools,
                         std::vector<ChatMessage>& messages) {
  const PromptWords words = prompt_words(format);
  std::vector<ChatMessage> out;
  out.reserve(messages.size() + 1);
  simdjson::dom::parser parser;
  bool after_result = false;
  for (ChatMessage& message : messages) {
    simdjson::dom::element extra;
    if (message.role == "tool") {
      const std::string text = "<tool_response>\n" + message.content + "\n</tool_response>";
      if (std::exchange(after_result, true)) {
        out.back().content +=
            "\n" + text;  // one turn of the user: templates want them to alternate
      } else {
        out.push_back({"user", text, "", ""});
      }
      continue;
    }
    after_result = false;
    if (message.role == "assistant" && !message.extra_json.empty() &&
        parser.parse(message.extra_json).get(extra) == simdjson::SUCCESS) {
      if (const std::string calls = calls_text(words, extra); !calls.empty()) {
        message.content += (message.content.empty() ? "" : "\n") + calls;
        message.extra_json.clear();
      }
    }
    out.push_back(std::move(message));
  }
  if (tools.is_used()) {
    const std::string told = instructions(words, tools);
    if (!out.empty() && out.front().role == "system") {
      out.front().content += "\n\n" + told;
    } else {
      out.insert(out.begin(), {"system", told, "", ""});
    }
  }
  messages = std::move(out);
}

void shorten_call_ids(std::vector<ChatMessage>& messages) {
  simdjson::dom::parser parser;
  for (ChatMessage& message : messages) {
    simdjson::dom::object fields;
    if (message.extra_json.empty() ||
        parser.parse(message.extra_json).get(fields) != simdjson::SUCCESS) {
      continue;
    }
    std::string out;
    for (const auto field : fields) {
      out += out.empty() ? '{' : ',';
      append_json_string(out, field.key);
      out += ':';
      simdjson::dom::array calls;
      std::string_view id;
      if (field.key == "tool_call_id" && field.value.get(id) == simdjson::SUCCESS) {
        append_json_string(out, short_call_id(id));
      } else if (field.key == "tool_calls" && field.value.get(calls) == simdjson::SUCCESS) {
        out += calls_with_short_ids(calls);
      } else {
        out += minified(field.value);
      }
    }
    message.extra_json = out + '}';
  }
}

}  // namespace baton::gateway
