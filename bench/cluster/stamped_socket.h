// TCP connections of a client that measures: the kernel says when bytes came, so that a busy
// client's late look at them does not count as a slow server.
//
// Thread: any. Failure: Unavailable when nobody answers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

#include "common/base/error.h"
#include "common/base/host_port.h"

namespace baton::bench {

// Nanoseconds of the system's clock.
using Nanoseconds = std::int64_t;
constexpr Nanoseconds kSecond = 1'000'000'000;
Nanoseconds now_ns();
constexpr Nanoseconds to_ns(double seconds) {
  return static_cast<Nanoseconds>(seconds * 1e9);
}

// In words, an errno.
std::string reason(int error);
// A connected socket, by the first of the host's addresses that answers.
Result<int> connect_to(const HostPort& server);
// As recv, and when the kernel got the last of what it gives.
ssize_t receive_stamped(int fd, std::span<char> buffer, Nanoseconds& at);

}  // namespace baton::bench
