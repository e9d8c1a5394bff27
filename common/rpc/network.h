// How control connections come to be: dial an address, or listen on one. Real processes use
// TcpNetwork (tcp_network.h), tests and simulations a network in memory. Every connection starts
// with Hello from the dialling side, answered by Welcome or Refusal; only then a Channel is handed
// over.
//
// Owner: the composition root; it outlives every listener, dial and channel made by it. Thread: all
// calls and callbacks on the executor the network was made with. Failure: see each call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "common/base/error.h"
#include "common/rpc/channel.h"
#include "common/wire/control.pb.h"

namespace baton {

struct Dialed {
  std::unique_ptr<Channel> channel;
  wire::Welcome welcome;
};
// Errors: Timeout, PeerDead (nobody there, closed before Welcome), ProtocolError, or the code of
// the other side's Refusal (Unauthorized, Mismatch, …) with the field's name in the message.
using DialHandler = std::function<void(Result<Dialed>)>;

// A dial in progress: dropping it cancels, and the handler never runs.
class Dial {
 public:
  virtual ~Dial() = default;
};

// Decides on a Hello. A Refusal names the field (hello_check.h makes them).
using HelloAnswer = std::variant<wire::Welcome, wire::Refusal>;
using HelloHandler = std::function<HelloAnswer(const wire::Hello&)>;
// Receives a welcomed connection; call `set_handlers` before returning.
using AcceptHandler = std::function<void(std::unique_ptr<Channel>, wire::Hello)>;

struct ListenerStats {
  std::uint64_t accepted = 0;     // sockets
  std::uint64_t welcomed = 0;     // handed over as channels
  std::uint64_t refused = 0;      // by the HelloHandler
  std::uint64_t untrusted = 0;    // no certificate of the cluster's authority
  std::uint64_t malformed = 0;    // bytes that are no Hello
  std::uint64_t timed_out = 0;    // no whole Hello in time
  std::uint64_t turned_away = 0;  // the oldest of too many without a Hello
};

// Accepts until stopped or dropped; channels already handed over stay.
class Listener {
 public:
  virtual ~Listener() = default;
  // host:port with the real port.
  virtual std::string address() const = 0;
  virtual ListenerStats stats() const = 0;
  virtual void stop() = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  // The handler runs once, later, unless the Dial is dropped before.
  [[nodiscard]] virtual std::unique_ptr<Dial> dial(const std::string& address,
                                                   wire::Hello hello,
                                                   std::chrono::milliseconds timeout,
                                                   DialHandler handler) = 0;
  // Errors: InvalidArgument (address), IoError (busy port; the message names it).
  virtual Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                                   HelloHandler on_hello,
                                                   AcceptHandler on_accept) = 0;
};

}  // namespace baton
