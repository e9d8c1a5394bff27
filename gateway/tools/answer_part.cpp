#include "gateway/tools/answer_part.h"

#include <fmt/format.h>

#include <iterator>

#include "common/json/json_escape.h"

namespace baton::gateway {
namespace {

using Kind = AnswerPart::Kind;

// All text of one kind, in order.
std::string text_of(std::span<const AnswerPart> parts, Kind kind, std::uint32_t call = 0) {
  std::string text;
  for (const AnswerPart& part : parts) {
    if (part.kind == kind && (kind != Kind::CallArguments || part.call == call)) {
      text += part.text;
    }
  }
  return text;
}

void append_function(std::string& out, std::string_view name, std::string_view arguments) {
  out += "\"type\":\"function\",\"function\":{\"name\":";
  append_json_string(out, name);
  out += ",\"arguments\":";
  append_json_string(out, arguments);
  out += '}';
}

}  // namespace

void add_part(AnswerParts& parts, Kind kind, std::uint32_t call, std::string_view text) {
  if (kind != Kind::CallBegin) {
    if (text.empty()) {
      return;
    }
    if (!parts.empty() && parts.back().kind == kind && parts.back().call == call) {
      parts.back().text += text;
      return;
    }
  }
  parts.push_back({kind, call, std::string(text), {}});
}

void append_delta(std::string& out, const AnswerPart& part) {
  switch (part.kind) {
    case Kind::Content:
      out += "{\"content\":";
      append_json_string(out, part.text);
      break;
    case Kind::Reasoning:
      out += "{\"reasoning_content\":";
      append_json_string(out, part.text);
      break;
    case Kind::CallBegin:
      fmt::format_to(
          std::back_inserter(out), "{{\"tool_calls\":[{{\"index\":{},\"id\":", part.call);
      append_json_string(out, part.id);
      out += ',';
      append_function(out, part.text, "");
      out += "}]";
      break;
    case Kind::CallArguments:
      fmt::format_to(std::back_inserter(out),
                     "{{\"tool_calls\":[{{\"index\":{},\"function\":{{\"arguments\":",
                     part.call);
      append_json_string(out, part.text);
      out += "}}]";
      break;
  }
  out += '}';
}

void append_message_fields(std::string& out, std::span<const AnswerPart> parts) {
  std::string calls;
  for (const AnswerPart& part : parts) {
    if (part.kind == Kind::CallBegin) {
      calls += calls.empty() ? "{\"id\":" : ",{\"id\":";
      append_json_string(calls, part.id);
      calls += ',';
      append_function(calls, part.text, text_of(parts, Kind::CallArguments, part.call));
      calls += '}';
    }
  }
  const std::string content = text_of(parts, Kind::Content);
  const std::string reasoning = text_of(parts, Kind::Reasoning);
  out += "\"content\":";
  if (content.empty() && !(calls.empty() && reasoning.empty())) {
    out += "null";
  } else {
    append_json_string(out, content);
  }
  out += ",\"refusal\":null";
  if (!reasoning.empty()) {
    out += ",\"reasoning_content\":";
    append_json_string(out, reasoning);
  }
  if (!calls.empty()) {
    out += ",\"tool_calls\":[";
    out += calls;
    out += ']';
  }
}

}  // namespace baton::gateway
