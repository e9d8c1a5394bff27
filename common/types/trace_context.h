// Where a request stands in a distributed trace: the W3C `traceparent` header, version 00
// (https://www.w3.org/TR/trace-context/).
//
// Thread: plain values. Failure: text that is none parses to nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

struct TraceContext {
  std::array<std::uint64_t, 2> trace{};  // high, low; never both 0
  std::uint64_t span = 0;                // whose child the next span is; never 0
  bool is_sampled = false;

  // Versions above 00 are read as 00; what they add behind it is dropped.
  static std::optional<TraceContext> parse(std::string_view traceparent);
  std::string to_traceparent() const;
  std::string trace_id() const;  // 32 hexadecimal digits
  bool operator==(const TraceContext&) const = default;
};

}  // namespace baton
