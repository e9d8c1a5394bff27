#include "common/types/trace_context.h"

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::size_t kLength = 55;  // 00-{32}-{16}-{2}

// Lower-case digits alone, as the recommendation has it.
std::optional<std::uint64_t> hex(std::string_view text) {
  std::uint64_t value = 0;
  for (const char c : text) {
    if ((c < '0' || c > '9') && (c < 'a' || c > 'f')) {
      return std::nullopt;
    }
    value = value << 4U | static_cast<std::uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace

std::optional<TraceContext> TraceContext::parse(std::string_view text) {
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  const auto version = hex(text.substr(0, 2));
  const auto high = hex(text.substr(3, 16));
  const auto low = hex(text.substr(19, 16));
  const auto span = hex(text.substr(36, 16));
  const auto flags = hex(text.substr(53, 2));
  const bool has_more = text.size() > kLength;
  if (!version || !high || !low || !span || !flags || *version == 0xff || *span == 0 ||
      (*high == 0 && *low == 0) || (has_more && (*version == 0 || text[kLength] != '-'))) {
    return std::nullopt;
  }
  return TraceContext{{*high, *low}, *span, (*flags & 1U) != 0};
}

std::string TraceContext::trace_id() const {
  return fmt::format("{:016x}{:016x}", trace[0], trace[1]);
}

std::string TraceContext::to_traceparent() const {
  return fmt::format("00-{}-{:016x}-{:02x}", trace_id(), span, is_sampled ? 1 : 0);
}

}  // namespace baton
