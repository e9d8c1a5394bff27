// "host:port" as a checked value. IPv6 hosts stand in brackets: [::1]:7000.
//
// Thread: plain values. Failure: `parse` says what is wrong with the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/error.h"

namespace baton {

struct HostPort {
  std::string host;
  std::uint16_t port = 0;  // 0: any free port, for listeners only

  static Result<HostPort> parse(std::string_view text);
  std::string to_string() const;
  // Of a listener: at every address of its host.
  bool is_everywhere() const { return host == "0.0.0.0" || host == "::"; }
  bool operator==(const HostPort&) const = default;
};

}  // namespace baton
