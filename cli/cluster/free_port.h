// TCP ports for clusters that are started on this machine.
//
// Thread: any. Failure: IoError when no port can be had.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/host_port.h"

namespace baton::cli {

// True when somebody listens on host:port, or the address cannot be bound here.
bool is_port_busy(const std::string& host, std::uint16_t port);

// An address with a free port, kept for a server that is about to be started: while this lives the
// port is bound, and given to nobody. It does not listen, and the server, which asks for
// SO_REUSEADDR or SO_REUSEPORT as servers do, binds the address beside it.
class HeldAddress {
 public:
  HeldAddress() = default;  // holds nothing
  static Result<HeldAddress> hold(const std::string& host);
  HeldAddress(HeldAddress&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)) {}
  HeldAddress& operator=(HeldAddress&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(address_, other.address_);
    return *this;
  }
  HeldAddress(const HeldAddress&) = delete;
  HeldAddress& operator=(const HeldAddress&) = delete;
  ~HeldAddress();

  const HostPort& address() const { return address_; }

 private:
  int fd_ = -1;
  HostPort address_;
};

}  // namespace baton::cli
