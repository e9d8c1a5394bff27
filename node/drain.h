// A node's way out of the cluster. From `start` on the node takes nothing new and says so at once.
// What ends within the limit ends as usual; what is in work when the limit ends is handed back to
// its gateways, which go on with it elsewhere. The node stays registered, draining and idle, until
// somebody stops it.
//
// Owner: a node's role. Thread: control strand. Failure: none.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"
#include "common/rpc/channel.h"
#include "node/role.h"

namespace baton::node {

class Drain {
 public:
  struct Handlers {
    std::function<bool()> is_idle;                // nothing is in work
    std::function<void()> announce;               // the gateways should hear of it now
    std::function<void(const Error&)> hand_back;  // everything in work goes back by this error
  };
  Drain(const RoleDeps& deps, Handlers handlers);
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;
  ~Drain() = default;

  // `limit` 0: hands back now. Asked again: the nearer limit counts, and both `drained` run once
  // nothing is in work, at once or later.
  void start(std::chrono::milliseconds limit, std::function<void()> drained = nullptr);
  // Starts as a Drain frame asks, and answers it when it is a call; where the frame names another
  // role, the node takes it once it is drained. REQUIRES: `frame` carries one.
  void answer(Channel& channel, const wire::Frame& frame);
  // Something in work has ended.
  void check();
  // Nobody hears of the end any more.
  void stop();

  bool is_draining() const { return is_draining_; }
  // Draining, with a sentence, once it has begun.
  Status check_open() const;

 private:
  void hand_back();
  Error why() const;

  Executor& executor_;
  const NodeName& node_;
  const Logger& log_;
  const Handlers handlers_;
  const std::function<void(const std::string&)> change_role_;
  Gauge gauge_;
  bool is_draining_ = false;
  TimePoint ends_at_{};
  TimerHandle limit_;
  std::vector<std::function<void()>> drained_;
};

}  // namespace baton::node
