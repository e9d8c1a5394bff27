#include "cli/cluster/free_port.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <random>

namespace baton::cli {

bool is_port_busy(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    return true;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return true;
  }
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound = bind(fd, list->ai_addr, list->ai_addrlen) == 0 && listen(fd, 1) == 0;
  close(fd);
  return !bound;
}

Result<std::uint16_t> find_free_port(const std::string& host) {
  constexpr std::uint16_t kLow = 15'000;
  constexpr std::uint16_t kHigh = 32'000;  // Linux gives outgoing connections 32768 and up
  constexpr int kTries = 200;
  std::random_device seed;
  std::uniform_int_distribution<std::uint16_t> draw(kLow, kHigh);
  for (int i = 0; i < kTries; ++i) {
    const std::uint16_t port = draw(seed);
    if (!is_port_busy(host, port)) {
      return port;
    }
  }
  return fail(ErrorCode::IoError, fmt::format("found no free port on {}", host));
}

}  // namespace baton::cli
