// Heartbeats of a control connection: one side sends at a fixed period, the other watches. Missed
// ones make a peer first suspect (no new work), later dead (the connection is dropped), so that a
// busy machine is not mistaken for a dead one.
//
// Owner: whoever owns the channel. Thread: the executor's strand. Failure: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "common/exec/executor.h"

namespace baton {

// Calls `send` at the executor's next turn and then every `period` until dropped, which may happen
// inside it.
class HeartbeatSender {
 public:
  HeartbeatSender(Executor& executor, std::chrono::milliseconds period, std::function<void()> send);
  HeartbeatSender(const HeartbeatSender&) = delete;
  HeartbeatSender& operator=(const HeartbeatSender&) = delete;
  ~HeartbeatSender() = default;

 private:
  void tick();

  Executor& executor_;
  const std::chrono::milliseconds period_;
  const std::function<void()> send_;
  TimerHandle timer_;
};

enum class PeerHealth : std::uint8_t { Alive, Suspect, Dead };

struct HeartbeatLimits {
  std::chrono::milliseconds period{250};
  std::uint32_t suspect_after = 3;  // missed heartbeats
  std::uint32_t dead_after = 6;     // more than suspect_after
};

// `on_change` runs at each change of health; Dead is final. The watch may be dropped inside it.
class HeartbeatWatch {
 public:
  HeartbeatWatch(Executor& executor,
                 HeartbeatLimits limits,
                 std::function<void(PeerHealth)> on_change);
  HeartbeatWatch(const HeartbeatWatch&) = delete;
  HeartbeatWatch& operator=(const HeartbeatWatch&) = delete;
  ~HeartbeatWatch() = default;

  // A heartbeat, or any other frame, came.
  void beat();
  PeerHealth health() const { return health_; }
  std::uint32_t missed() const { return silent_ticks_ / kTicks; }

 private:
  static constexpr std::uint32_t kTicks = 4;  // a period: a silence is measured to a quarter of one

  void arm();
  void tick();
  void change(PeerHealth health);

  Executor& executor_;
  const HeartbeatLimits limits_;
  const std::function<void(PeerHealth)> on_change_;
  PeerHealth health_ = PeerHealth::Alive;
  // Counted in own ticks, not in clock time: when this process is held up, it counts slower too,
  // and reads what waits in its sockets before it calls a peer dead.
  std::uint32_t silent_ticks_ = 0;
  TimerHandle timer_;
};

}  // namespace baton
