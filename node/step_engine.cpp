#include "node/step_engine.h"

#include <utility>

#include "common/base/check.h"

namespace baton::node {

StepEngine::StepEngine(Executor& control,
                       Executor& engine,
                       engine::ModelRunner& runner,
                       const KvArenaView& arena)
    : control_(control), engine_(engine), runner_(runner), arena_(arena) {}

void StepEngine::run(engine::StepPlan plan, engine::LayerDone layer_done, Done done) {
  BATON_CHECK(!busy_, "one step at a time");
  BATON_CHECK(!plan.slices.empty(), "an empty step");
  busy_ = true;
  ++num_steps_;
  engine_.post([this,
                &control = control_,
                &engine = engine_,
                &runner = runner_,
                arena = arena_,
                alive = std::weak_ptr<bool>(alive_),
                plan = std::move(plan),
                layer_done = std::move(layer_done),
                done = std::move(done)]() mutable {
    const TimePoint start = engine.now();
    Outcome outcome;
    outcome.result = runner.run(plan, arena, layer_done);
    outcome.duration = engine.now() - start;
    control.post([this,
                  alive = std::move(alive),
                  outcome = std::move(outcome),
                  done = std::move(done)]() mutable {
      if (alive.expired()) {
        return;
      }
      busy_ = false;
      done(std::move(outcome));
    });
  });
}

}  // namespace baton::node
