// Time and threads of a simulation: each process has strands (control, engine, data), each strand
// is an Executor with a queue of its own. Which of the runnable strands takes the next step is
// drawn from the seed; time moves on when none can run. A process may be stopped (its tasks wait,
// as after SIGSTOP), continued, or killed (its tasks never run again).
//
// Owner: a Simulation; the world outlives all that runs in it. Thread: one. Failure: `fail` keeps
// the first broken invariant; the run ends there.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/exec/executor.h"
#include "tests/sim/rng.h"

namespace baton::sim {

class World;
class Process;

class Strand final : public Executor {
 public:
  // How long a task that came from another strand waits at most before it may run.
  struct Latency {
    Duration least{};
    Duration most{};
    double often = 1;  // share of the tasks that wait at all
  };

  Strand(World& world, Process& process, std::string name, Latency latency);

  void post(Task task) override;
  TimerHandle call_after(Duration delay, Task task) override;
  TimePoint now() const override;
  bool is_current() const override;

  // Not to be cancelled, not in order with `post`.
  void post_after(Duration delay, Task task);
  const std::string& name() const { return name_; }

 private:
  friend class World;
  friend class StrandTimer;
  using Key = std::pair<TimePoint, std::uint64_t>;
  struct Posted {
    TimePoint due;
    Task task;
  };
  // When its next task may run.
  std::optional<TimePoint> next_due() const;
  void run_one();
  void drop_all();

  World& world_;
  Process& process_;
  const std::string name_;
  const Latency latency_;
  std::deque<Posted> posted_;
  std::map<Key, Task> timers_;
  std::uint64_t number_ = 0;
};

enum class Life : std::uint8_t { Running, Stopped, Dead };

class Process {
 public:
  Process(World& world, std::string name) : world_(world), name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  Life life() const { return life_; }
  bool is_dead() const { return life_ == Life::Dead; }
  void stop() { life_ = life_ == Life::Running ? Life::Stopped : life_; }
  void go_on() { life_ = life_ == Life::Stopped ? Life::Running : life_; }
  void die() { life_ = Life::Dead; }
  // Runs `action` outside of any task, once `tasks` more tasks of this process have run.
  void after_tasks(std::uint64_t tasks, std::function<void()> action);
  Strand& add_strand(const std::string& name, Strand::Latency latency = {});

 private:
  friend class World;
  struct Due {
    std::uint64_t at = 0;
    std::function<void()> action;
  };
  World& world_;
  const std::string name_;
  Life life_ = Life::Running;
  std::uint64_t tasks_ = 0;
  std::vector<Due> due_;
};

class World {
 public:
  World(std::uint64_t seed, bool verbose);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  Process& add_process(const std::string& name);
  TimePoint now() const { return now_; }
  Duration elapsed() const { return now_ - start_; }
  // The strand that belongs to nobody: faults, clients, the wire.
  Strand& outside() { return *outside_; }

  // Runs tasks until `done`, the limit of time, or a failure. False: not done.
  bool run_until(const std::function<bool()>& done, Duration limit);
  void run_for(Duration duration);
  // Runs after every `period` tasks, outside of them.
  void set_watch(std::uint64_t period, std::function<void()> watch);

  void fail(std::string what);
  bool has_failed() const { return failure_.has_value(); }
  const std::string& failure() const { return *failure_; }

  bool is_verbose() const { return verbose_; }
  // A line of the trace, with the time.
  void note(const std::string& line) const;
  std::uint64_t num_tasks() const { return num_tasks_; }
  // Equal for equal runs.
  std::uint64_t trace_hash() const { return trace_hash_; }

 private:
  friend class Strand;
  friend class Process;
  bool step(TimePoint limit);

  const bool verbose_;
  Rng order_;
  const TimePoint start_{std::chrono::hours(1)};
  TimePoint now_ = start_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Strand>> strands_;
  Strand* outside_ = nullptr;
  Strand* current_ = nullptr;
  std::vector<Strand*> runnable_;  // scratch
  std::uint64_t num_tasks_ = 0;
  std::uint64_t trace_hash_ = 0;
  std::uint64_t watch_period_ = 0;
  std::function<void()> watch_;
  std::optional<std::string> failure_;
};

}  // namespace baton::sim
