#include "tests/sim/world.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::sim {

class StrandTimer final : public Timer {
 public:
  StrandTimer(Strand& strand, Strand::Key key) : strand_(strand), key_(key) {}
  StrandTimer(const StrandTimer&) = delete;
  StrandTimer& operator=(const StrandTimer&) = delete;
  ~StrandTimer() override {
    // The task's destructor may cancel other timers: it runs after the map is whole again.
    const auto cancelled = strand_.timers_.extract(key_);
  }
  bool is_pending() const override { return strand_.timers_.contains(key_); }

 private:
  Strand& strand_;
  const Strand::Key key_;
};

Strand::Strand(World& world, Process& process, std::string name, Latency latency)
    : world_(world), process_(process), name_(std::move(name)), latency_(latency) {}

void Strand::post(Task task) {
  TimePoint due = world_.now_;
  if (world_.current_ != this && latency_.most > Duration::zero() &&
      world_.order_.chance(latency_.often)) {
    due += world_.order_.between(latency_.least, latency_.most);
  }
  if (!posted_.empty()) {
    due = std::max(due, posted_.back().due);
  }
  posted_.push_back({due, std::move(task)});
}

TimerHandle Strand::call_after(Duration delay, Task task) {
  const Key key{world_.now_ + std::max(delay, Duration::zero()), number_++};
  timers_.emplace(key, std::move(task));
  return TimerHandle(std::make_unique<StrandTimer>(*this, key));
}

void Strand::post_after(Duration delay, Task task) {
  timers_.emplace(Key{world_.now_ + std::max(delay, Duration::zero()), number_++}, std::move(task));
}

TimePoint Strand::now() const {
  return world_.now_;
}

bool Strand::is_current() const {
  return world_.current_ == this;
}

std::optional<TimePoint> Strand::next_due() const {
  if (process_.life() != Life::Running || (posted_.empty() && timers_.empty())) {
    return std::nullopt;
  }
  if (posted_.empty()) {
    return timers_.begin()->first.first;
  }
  const TimePoint due = posted_.front().due;
  return timers_.empty() ? due : std::min(due, timers_.begin()->first.first);
}

void Strand::run_one() {
  const bool posted = !posted_.empty() && posted_.front().due <= world_.now_;
  const bool timer = !timers_.empty() && timers_.begin()->first.first <= world_.now_;
  Task task;
  if (posted && (!timer || world_.order_.chance(0.5))) {
    task = std::move(posted_.front().task);
    posted_.pop_front();
  } else {
    task = std::move(timers_.extract(timers_.begin()).mapped());
  }
  task();
}

void Strand::drop_all() {
  const auto posted = std::exchange(posted_, {});
  const auto timers = std::exchange(timers_, {});
}

void Process::after_tasks(std::uint64_t tasks, std::function<void()> action) {
  due_.push_back({tasks_ + tasks, std::move(action)});
}

Strand& Process::add_strand(const std::string& name, Strand::Latency latency) {
  world_.strands_.push_back(
      std::make_unique<Strand>(world_, *this, fmt::format("{}/{}", name_, name), latency));
  return *world_.strands_.back();
}

World::World(std::uint64_t seed, bool verbose) : verbose_(verbose), order_(seed, 1) {
  outside_ = &add_process("world").add_strand("outside");
}

World::~World() {
  // What a dropped task drops may post once more.
  for (int i = 0; i < 8; ++i) {
    for (const auto& strand : strands_) {
      strand->drop_all();
    }
  }
}

Process& World::add_process(const std::string& name) {
  processes_.push_back(std::make_unique<Process>(*this, name));
  return *processes_.back();
}

bool World::step(TimePoint limit) {
  TimePoint next = TimePoint::max();
  runnable_.clear();
  for (const auto& strand : strands_) {
    const auto due = strand->next_due();
    if (!due) {
      continue;
    }
    if (*due <= now_) {
      runnable_.push_back(strand.get());
    }
    next = std::min(next, *due);
  }
  if (runnable_.empty()) {
    if (next > limit) {
      now_ = std::max(now_, limit);
      return false;
    }
    now_ = next;
    return true;
  }
  current_ = runnable_[order_.below(runnable_.size())];
  ++num_tasks_;
  trace_hash_ = (trace_hash_ ^ (static_cast<std::uint64_t>(now_.time_since_epoch().count()) +
                                current_->name_.size() * 31 + current_->name_.back())) *
                0x100000001b3ULL;
  Process& process = current_->process_;
  current_->run_one();
  current_ = nullptr;
  ++process.tasks_;
  for (std::size_t i = 0; i < process.due_.size();) {
    if (process.due_[i].at > process.tasks_) {
      ++i;
      continue;
    }
    const auto action = std::move(process.due_[i].action);
    process.due_.erase(process.due_.begin() + static_cast<std::ptrdiff_t>(i));
    action();
  }
  if (watch_period_ > 0 && num_tasks_ % watch_period_ == 0) {
    watch_();
  }
  return true;
}

bool World::run_until(const std::function<bool()>& done, Duration limit) {
  const TimePoint end = now_ + limit;
  while (!failure_) {
    if (done()) {
      return true;
    }
    if (!step(end)) {
      return done();
    }
  }
  return false;
}

void World::run_for(Duration duration) {
  run_until([] { return false; }, duration);
}

void World::set_watch(std::uint64_t period, std::function<void()> watch) {
  watch_period_ = period;
  watch_ = std::move(watch);
}

void World::fail(std::string what) {
  if (!failure_) {
    note("BROKEN: " + what);
    failure_ = std::move(what);
  }
}

void World::note(const std::string& line) const {
  if (verbose_) {
    fmt::print(
        "{:>12.3f} ms  {}\n", std::chrono::duration<double, std::milli>(elapsed()).count(), line);
  }
}

}  // namespace baton::sim
