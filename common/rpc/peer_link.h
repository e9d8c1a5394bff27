// Keeps a connection to one address alive: dials, greets, and dials again after a loss with a
// growing, jittered pause.
//
// Sequence of events: start -> [on_failed]* -> on_up -> on_frame* -> on_down -> [on_failed]* ->
// on_up … until `stop` or the destructor; nothing is called after those.
//
// Owner: whoever needs the peer; it may be stopped, not dropped, inside its callbacks. Thread: the
// executor's strand. Failure: a refused Hello counts as
// a failed dial and is tried again at the longest pause: the other side may be restarted with the
// right settings.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/exec/executor.h"
#include "common/rpc/network.h"

namespace baton {

struct PeerLinkOptions {
  std::string address;
  std::chrono::milliseconds dial_timeout{5'000};
  std::chrono::milliseconds first_pause{50};
  std::chrono::milliseconds longest_pause{2'000};
};

struct PeerLinkHandlers {
  std::function<wire::Hello()> make_hello;  // asked at each dial
  std::function<void(Channel&, const wire::Welcome&)> on_up;
  std::function<void(Channel&, wire::Frame)> on_frame;  // frames that are no answers
  std::function<void(const Error&)> on_down;            // after every open call has failed
  std::function<void(const Error&)> on_failed;          // a dial failed; optional
};

class PeerLink {
 public:
  PeerLink(Executor& executor,
           Network& network,
           RandomSource random,
           PeerLinkOptions options,
           PeerLinkHandlers handlers);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;
  ~PeerLink();

  void start();
  void stop();
  // Null while down.
  Channel* channel() const { return channel_.get(); }
  bool is_up() const { return channel_ != nullptr; }
  // Ends the connection (open calls fail, then on_down) and dials again: for a peer that misses its
  // heartbeats.
  void reset(const Error& why);
  const std::string& address() const { return options_.address; }

 private:
  void dial();
  void dialed(Result<Dialed> result);
  void lost(const Error& why);
  void dial_later(bool longest);

  Executor& executor_;
  Network& network_;
  const RandomSource random_;
  const PeerLinkOptions options_;
  const PeerLinkHandlers handlers_;
  bool running_ = false;
  std::uint32_t failures_ = 0;  // dials since the last welcome
  std::unique_ptr<Dial> dial_;
  std::unique_ptr<Channel> channel_;
  TimerHandle timer_;
};

}  // namespace baton
