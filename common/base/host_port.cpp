#include "common/base/host_port.h"

#include <fmt/format.h>

#include <charconv>

namespace baton {
namespace {

constexpr std::size_t kMaxHost = 255;

bool is_host_char(char c, bool bracketed) {
  const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '.' || c == '-' || c == '_';
  return plain || (bracketed && (c == ':' || c == '%'));
}

}  // namespace

Result<HostPort> HostPort::parse(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("'{}' is no address of the form host:port: {}", text, why));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return wrong("the port is missing");
  }
  auto host = text.substr(0, colon);
  const auto digits = text.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) {
    return wrong("the host is missing");
  }
  if (host.size() > kMaxHost) {
    return wrong("the host is too long");
  }
  for (const char c : host) {
    if (!is_host_char(c, bracketed)) {
      return wrong(c == ':' ? "an IPv6 host stands in brackets" : "the host has a bad character");
    }
  }
  unsigned port = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || parsed.ec != std::errc{} || parsed.ptr != digits.data() + digits.size() ||
      port > 65535) {
    return wrong("the port must be a number between 0 and 65535");
  }
  return HostPort{std::string(host), static_cast<std::uint16_t>(port)};
}

std::string HostPort::to_string() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace baton
