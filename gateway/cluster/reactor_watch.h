// Watches the loop counter of a node's data thread, which its heartbeats carry: a live control
// thread must not hide a data thread that stands still. Judged like missed heartbeats, by beats
// that show no movement, each at least half a period after the one counted before.
//
// Owner: Membership, one a node. Thread: the control strand. Failure: none.
#pragma once

#include <cstdint>

#include "common/exec/executor.h"
#include "common/rpc/heartbeat.h"

namespace baton::gateway {

class ReactorWatch {
 public:
  // `ticks` of a heartbeat; 0 says nothing: a node without a data plane.
  PeerHealth beat(std::uint64_t ticks, TimePoint now, const HeartbeatLimits& limits) {
    if (ticks == 0 || ticks != ticks_) {
      ticks_ = ticks;
      still_ = 0;
      counted_ = now;
    } else if (now - counted_ >= limits.period / 2) {
      ++still_;
      counted_ = now;
    }
    health_ = still_ >= limits.dead_after      ? PeerHealth::Dead
              : still_ >= limits.suspect_after ? PeerHealth::Suspect
                                               : PeerHealth::Alive;
    return health_;
  }
  PeerHealth health() const { return health_; }

 private:
  std::uint64_t ticks_ = 0;
  std::uint32_t still_ = 0;  // beats in a row without movement
  TimePoint counted_;
  PeerHealth health_ = PeerHealth::Alive;
};

}  // namespace baton::gateway
