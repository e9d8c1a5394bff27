#include "cli/cluster/free_port.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <system_error>

namespace baton::cli {
namespace {

void turn_on(int fd, int option) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, option, &on, sizeof(on));
}

// Below 0 when it cannot be bound. `shared`: also beside connections that linger.
int bound_socket(const std::string& host, std::uint16_t port, bool shared) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  const int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && shared) {
    turn_on(fd, SO_REUSEADDR);
  }
  if (fd >= 0 && bind(fd, list->ai_addr, list->ai_addrlen) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

}  // namespace

bool is_port_busy(const std::string& host, std::uint16_t port) {
  const int fd = bound_socket(host, port, true);
  if (fd < 0) {
    return true;
  }
  const bool listens = listen(fd, 1) == 0;
  close(fd);
  return !listens;
}

Result<HeldAddress> HeldAddress::hold(const std::string& host) {
  HeldAddress held;
  held.fd_ = bound_socket(host, 0, false);
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (held.fd_ < 0 || getsockname(held.fd_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return fail(
        ErrorCode::IoError,
        fmt::format("found no free port on {}: {}", host, std::generic_category().message(errno)));
  }
  // Only now: a port that somebody else shares would not be free.
  turn_on(held.fd_, SO_REUSEADDR);
  turn_on(held.fd_, SO_REUSEPORT);
  // IPv6 has the port at the same place.
  held.address_ = {host, ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port)};
  return held;
}

HeldAddress::~HeldAddress() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

}  // namespace baton::cli
