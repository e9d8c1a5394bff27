// The place of the first fault in JSON that we were sent.
//
// Thread: pure functions. Failure: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace baton::gateway {

struct JsonFault {
  std::size_t offset = 0;  // byte position in the text, from 0
  std::string what;        // "expected ',' or '}'"
};

// Where strict JSON (RFC 8259, UTF-8) of at most `max_depth` levels breaks; nothing when it holds.
// Far slower than the parser: it runs only to explain a text that the parser has refused.
std::optional<JsonFault> find_json_fault(std::string_view text, std::size_t max_depth);

}  // namespace baton::gateway
