#include "bench/cluster/stamped_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

namespace baton::bench {
namespace {

Nanoseconds to_ns(const timespec& time) {
  return Nanoseconds{time.tv_sec} * kSecond + time.tv_nsec;
}

Nanoseconds stamp_of(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_TIMESTAMPNS) {
      timespec time{};
      std::memcpy(&time, CMSG_DATA(part), sizeof(time));
      return to_ns(time);
    }
  }
  return now_ns();
}

}  // namespace

Nanoseconds now_ns() {
  timespec time{};
  clock_gettime(CLOCK_REALTIME, &time);
  return to_ns(time);
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

Result<int> connect_to(const HostPort& server) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int fault =
      ::getaddrinfo(server.host.c_str(), std::to_string(server.port).c_str(), &wanted, &found);
  if (fault != 0) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{}: {}", server.host, ::gai_strerror(fault)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  int error = ECONNREFUSED;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int fd = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && ::connect(fd, at->ai_addr, at->ai_addrlen) == 0) {
      const int on = 1;
      (void)::setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
      (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return fd;
    }
    error = errno;
    if (fd >= 0) {
      ::close(fd);
    }
  }
  return fail(ErrorCode::Unavailable,
              fmt::format("cannot connect to {}: {}", server.to_string(), reason(error)));
}

ssize_t receive_stamped(int fd, std::span<char> buffer, Nanoseconds& at) {
  std::array<char, 256> control;
  iovec part{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = ::recvmsg(fd, &message, 0);
  if (count > 0) {
    at = stamp_of(message);
  }
  return count;
}

}  // namespace baton::bench
