// Runs steps on the engine thread, one at a time, and brings their results back to the control
// strand. All decisions and all state stay on the strand; the engine thread only computes.
//
// Owner: a node's role. Thread: control strand; `layer_done` runs on the engine thread. Failure:
// none. After this object is gone a result that is still coming is dropped; the step's inputs must
// outlive the engine thread's work, so stop that thread before dropping sequences and arena.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/exec/executor.h"
#include "engine/runner.h"

namespace baton::node {

// As figures count.
inline std::uint64_t to_us(Duration duration) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

class StepEngine {
 public:
  struct Outcome {
    engine::StepResult result;
    Duration duration{};  // on the engine thread
  };
  using Done = std::move_only_function<void(Outcome)>;

  StepEngine(Executor& control,
             Executor& engine,
             engine::ModelRunner& runner,
             const KvArenaView& arena);
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;
  ~StepEngine() = default;

  bool is_busy() const { return busy_; }
  std::uint64_t num_steps() const { return num_steps_; }
  // `done` runs on the strand, later. What the plan borrows stays unchanged until then.
  // REQUIRES: not busy; the plan is not empty.
  void run(engine::StepPlan plan, engine::LayerDone layer_done, Done done);

 private:
  Executor& control_;
  Executor& engine_;
  engine::ModelRunner& runner_;
  const KvArenaView arena_;
  bool busy_ = false;
  std::uint64_t num_steps_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by results on their way
};

}  // namespace baton::node
