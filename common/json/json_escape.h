// Text as a JSON string (RFC 8259).
//
// Thread: pure functions. Failure: none; `text` must be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// Appends the characters of a JSON string, without quotes.
void append_json_escaped(std::string& out, std::string_view text);
// The same with quotes.
void append_json_string(std::string& out, std::string_view text);

}  // namespace baton
