// Sees a data thread that stands still behind a live control thread: the peer's heartbeats come,
// but its loop counter does not move. Counted in own ticks, as missed heartbeats are, and by their
// limit.
//
// Owner: whoever owns the connection. Thread: control strand. Failure: none; a peer that tells no
// counter (0) is never stuck.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "common/rpc/heartbeat.h"

namespace baton::node {

class DataWatch {
 public:
  // `on_stuck` runs once, and may drop the watch.
  DataWatch(Executor& executor, HeartbeatLimits limits, std::function<void()> on_stuck)
      : watch_(executor, limits, [on_stuck = std::move(on_stuck)](PeerHealth health) {
          if (health == PeerHealth::Dead) {
            on_stuck();
          }
        }) {}

  // A heartbeat that says `ticks`.
  void beat(std::uint64_t ticks) {
    if (ticks == 0 || std::exchange(ticks_, ticks) != ticks) {
      watch_.beat();
    }
  }

 private:
  HeartbeatWatch watch_;
  std::uint64_t ticks_ = 0;
};

}  // namespace baton::node
