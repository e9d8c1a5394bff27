// The first exchange on a connection, the same for every kind of network: Hello from the dialling
// side, Welcome or Refusal back. Channels become their user's only after it.
//
// Owner: the listener or dial in question. Thread: the executor's strand. Failure: anything but the
// expected frame ends the connection; the listening side counts why.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/rpc/network.h"
#include "common/rpc/refused_probe.h"

namespace baton {

// Listening side: holds accepted connections until their Hello is answered.
class Greeter : public std::enable_shared_from_this<Greeter> {
 public:
  Greeter(Executor& executor,
          HelloHandler on_hello,
          AcceptHandler on_accept,
          std::chrono::milliseconds timeout,
          std::size_t max_pending,
          RefusedProbe refused = {},
          const Logger* log = nullptr);

  // With `max_pending` others that have not said Hello, the oldest of these is turned away: a node
  // says Hello at once, and strangers that are silent do not keep it out.
  void add(std::unique_ptr<Channel> channel);
  // Drops what is pending and accepts no more.
  void stop();
  const ListenerStats& stats() const { return stats_; }

 private:
  struct Pending {
    std::unique_ptr<Channel> channel;
    TimerHandle timer;
  };
  void lost(std::uint64_t number, const Error& error);
  void turn_oldest_away();
  // Tells in the log, at most once in a while.
  void tell(const std::string& remote, const std::string& why);
  void first_frame(std::uint64_t number, wire::Frame frame);
  std::unique_ptr<Channel> take(std::uint64_t number);

  Executor& executor_;
  const HelloHandler on_hello_;
  const AcceptHandler on_accept_;
  const std::chrono::milliseconds timeout_;
  const std::size_t max_pending_;
  const RefusedProbe refused_;
  const Logger* const log_;  // may be null
  TimePoint told_;
  std::uint64_t untold_ = 0;
  bool stopped_ = false;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Pending> pending_;  // by age
  ListenerStats stats_;
};

// Dialling side: sends the Hello on a fresh channel and waits for the answer. The caller holds the
// limit on time. Drop it to cancel.
class HelloExchange : public std::enable_shared_from_this<HelloExchange> {
 public:
  // `done` runs once, from the channel's callbacks.
  static std::shared_ptr<HelloExchange> start(std::unique_ptr<Channel> channel,
                                              wire::Hello hello,
                                              DialHandler done);
  void cancel();

 private:
  void answered(wire::Frame frame);
  void finish(Result<Dialed> result);

  std::unique_ptr<Channel> channel_;
  DialHandler done_;
};

}  // namespace baton
