#include "gateway/http/cors.h"

#include <fmt/format.h>

namespace baton::gateway {
namespace {

constexpr std::string_view kExposed =
    "access-control-expose-headers: x-request-id, retry-after, retry-after-ms, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens\r\n";
constexpr std::string_view kVary = "vary: origin\r\n";

}  // namespace

Cors::Cors(const std::vector<std::string>& origins)
    : all_(fmt::format("access-control-allow-origin: *\r\n{}", kExposed)), others_(kVary) {
  for (const std::string& origin : origins) {
    allows_all_ |= origin == "*";
    allowed_.emplace_back(
        origin, fmt::format("access-control-allow-origin: {}\r\n{}{}", origin, kVary, kExposed));
  }
}

std::string_view Cors::lines_for(std::string_view origin) const {
  if (allows_all_) {
    return all_;
  }
  for (const auto& [allowed, lines] : allowed_) {
    if (allowed == origin) {
      return lines;
    }
  }
  return others_;
}

}  // namespace baton::gateway
