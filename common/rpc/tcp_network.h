// Control connections over TCP: a frame is 4 bytes of length, little-endian, and that many bytes of
// protobuf (docs/wire.md). Frames queued while a write is in work go out together in the next one.
//
// Owner, thread, failure: network.h. A peer that does not read until `max_queued_bytes` wait for it
// loses the connection with PeerStalled, so that it cannot take our memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "common/exec/asio_executor.h"
#include "common/obs/log.h"
#include "common/rpc/network.h"
#include "common/rpc/refused_probe.h"

namespace baton {

class ControlTls;

struct RpcOptions {
  std::shared_ptr<ControlTls> tls;  // null: plain TCP
  RefusedProbe refused;
  std::size_t max_queued_bytes = std::size_t{16} << 20;
  std::chrono::milliseconds hello_timeout{5'000};  // accepted socket to whole Hello
  // Accepted sockets without a Hello yet, at least one; one more costs the oldest its place.
  std::size_t max_handshakes = 128;
};

class TcpNetwork final : public Network {
 public:
  TcpNetwork(AsioExecutor& executor, const Logger& log, RpcOptions options = {});

  std::unique_ptr<Dial> dial(const std::string& address,
                             wire::Hello hello,
                             std::chrono::milliseconds timeout,
                             DialHandler handler) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                           HelloHandler on_hello,
                                           AcceptHandler on_accept) override;

 private:
  AsioExecutor& executor_;
  const Logger& log_;
  const RpcOptions options_;
};

}  // namespace baton
