// JSON to values and back. Every string that comes in is foreign text.
//
// Thread: pure functions. Failure: InvalidArgument that says what was being read.
#pragma once

#include <string_view>

#include "common/base/error.h"
#include "engine/chat_template/value.h"

namespace baton::engine::jinja {

// `what` names the text in messages.
Result<Value> parse_json(std::string_view text, std::string_view what);

struct JsonStyle {
  int indent = -1;  // spaces a level; negative: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};

// As json.dumps. Foreign as a whole when any string of the value is.
Result<Text> to_json(const Value& value, const JsonStyle& style);

}  // namespace baton::engine::jinja
