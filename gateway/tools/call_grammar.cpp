#include "gateway/tools/call_grammar.h"

#include <string_view>

#include "common/json/json_escape.h"

namespace baton::gateway {
namespace {

// The texts around one call's name and arguments, and between two calls. None of them is a special
// token: a grammar cannot ask for those. So Mistral's calls come as a bare list.
struct CallWords {
  std::string_view begin;      // up to the name
  std::string_view arguments;  // from the name to the arguments
  std::string_view end;
  std::string_view between;
  std::string_view before_all;
  std::string_view after_all;
};

CallWords call_words(ToolFormat format) {
  switch (format) {
    case ToolFormat::Llama3:
      return {"{\"name\": \"", "\", \"parameters\": ", "}", "; ", "", ""};
    case ToolFormat::Gemma:
      return {"{\"name\": \"", "\", \"parameters\": ", "}", "\n", "", ""};
    case ToolFormat::Mistral:
      return {"{\"name\": \"", "\", \"arguments\": ", "}", ", ", "[", "]"};
    default:
      return {"<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>", "\n", "", ""};
  }
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string const_string(std::string_view value) {
  return "{\"type\":\"const_string\",\"value\":" + json_string(value) + "}";
}

std::string sequence(const std::string& elements) {
  return "{\"type\":\"sequence\",\"elements\":[" + elements + "]}";
}

std::string calls(const CallWords& words, const ToolRequest& tools, bool one_call) {
  std::string tags;
  for (const FunctionTool& tool : tools.tools) {
    std::string begin{words.begin};
    begin += tool.name;
    begin += words.arguments;
    tags += tags.empty() ? "" : ",";
    tags += "{\"type\":\"tag\",\"begin\":" + json_string(begin) +
            ",\"content\":{\"type\":\"json_schema\",\"json_schema\":" + tool.parameters_json +
            "},\"end\":" + json_string(words.end) + "}";
  }
  return "{\"type\":\"tags_with_separator\",\"tags\":[" + tags +
         "],\"separator\":" + json_string(words.between) +
         ",\"at_least_one\":true,\"stop_after_first\":" + (one_call ? "true" : "false") + "}";
}

std::string thinking(std::string_view begin) {
  return "{\"type\":\"tag\",\"begin\":" + json_string(begin) +
         ",\"content\":{\"type\":\"any_text\"},\"end\":\"</think>\"}," + const_string("\n\n");
}

std::string any_of(const std::string& elements) {
  return "{\"type\":\"or\",\"elements\":[" + elements + "]}";
}

// A grammar as a part of a tag. REQUIRES: its kind is not None.
std::string as_format(const Grammar& grammar) {
  switch (grammar.kind) {
    case Grammar::Kind::JsonSchema:
      return "{\"type\":\"json_schema\",\"json_schema\":" + grammar.text + "}";
    case Grammar::Kind::Regex:
      return "{\"type\":\"regex\",\"pattern\":" + json_string(grammar.text) + "}";
    case Grammar::Kind::Ebnf:
      return "{\"type\":\"grammar\",\"grammar\":" + json_string(grammar.text) + "}";
    default:
      return R"({"type":"json_schema","json_schema":{"type":"object"}})";
  }
}

}  // namespace

std::string call_grammar(ToolFormat format,
                         const ToolRequest& tools,
                         const CallGrammarOptions& options) {
  const CallWords words = call_words(format);
  std::string wanted = calls(words, tools, options.one_call);
  if (!words.before_all.empty()) {
    wanted = sequence(const_string(words.before_all) + "," + wanted + "," +
                      const_string(words.after_all));
  }
  if (options.otherwise.kind != Grammar::Kind::None) {
    wanted = any_of(wanted + "," + as_format(options.otherwise));
  }
  if (options.reasoning_open) {
    wanted = sequence(thinking("") + "," + wanted);
  } else if (options.reasoning) {
    wanted = any_of(wanted + "," + sequence(thinking("<think>") + "," + wanted));
  }
  return "{\"type\":\"structural_tag\",\"format\":" + wanted + "}";
}

}  // namespace baton::gateway
