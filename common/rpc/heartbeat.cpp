#include "common/rpc/heartbeat.h"

#include "common/base/check.h"

namespace baton {

HeartbeatSender::HeartbeatSender(Executor& executor,
                                 std::chrono::milliseconds period,
                                 std::function<void()> send)
    : executor_(executor), period_(period), send_(std::move(send)) {
  timer_ = executor_.call_after(Duration::zero(), [this] { tick(); });
}

void HeartbeatSender::tick() {
  timer_ = executor_.call_after(period_, [this] { tick(); });
  const auto send = send_;  // the sender may be dropped inside
  send();
}

HeartbeatWatch::HeartbeatWatch(Executor& executor,
                               HeartbeatLimits limits,
                               std::function<void(PeerHealth)> on_change)
    : executor_(executor), limits_(limits), on_change_(std::move(on_change)) {
  BATON_CHECK(limits.suspect_after >= 1 && limits.dead_after > limits.suspect_after,
              "heartbeat limits must rise");
  arm();
}

void HeartbeatWatch::arm() {
  timer_ = executor_.call_after(Duration(limits_.period) / kTicks, [this] { tick(); });
}

void HeartbeatWatch::beat() {
  silent_ticks_ = 0;
  if (health_ == PeerHealth::Suspect) {
    change(PeerHealth::Alive);
  }
}

void HeartbeatWatch::tick() {
  ++silent_ticks_;
  if (missed() >= limits_.dead_after) {
    change(PeerHealth::Dead);
    return;
  }
  arm();
  if (missed() >= limits_.suspect_after && health_ == PeerHealth::Alive) {
    change(PeerHealth::Suspect);
  }
}

void HeartbeatWatch::change(PeerHealth health) {
  health_ = health;
  const auto on_change = on_change_;  // the watch may be dropped inside
  on_change(health);
}

}  // namespace baton
