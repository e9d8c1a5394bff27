#include "engine/parallel/rank_team.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::engine {
namespace {

// About 100 microseconds of looking before a thread sleeps: longer than ranks drift apart inside a
// layer, shorter than a scheduler's slice.
constexpr int kSpins = 4000;

// Returns when `value` is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) {
      return;
    }
    __builtin_ia32_pause();
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

// Ranks that share memory: a gather reads the others' buffers between two barriers.
class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(std::uint32_t rank, SpinBarrier& barrier, std::vector<const float*>& buffers)
      : rank_(rank), barrier_(barrier), buffers_(buffers) {}

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t size() const override { return static_cast<std::uint32_t>(buffers_.size()); }
  void barrier() override { barrier_.wait(); }

  void all_gather(std::span<float> all, std::span<const std::size_t> borders) override {
    BATON_CHECK(borders.size() == buffers_.size() + 1 && borders.back() == all.size(),
                "the borders of a gather do not fit");
    buffers_[rank_] = all.data();
    barrier_.wait();
    for (std::uint32_t other = 0; other < size(); ++other) {
      if (other != rank_) {
        std::copy(buffers_[other] + borders[other],
                  buffers_[other] + borders[other + 1],
                  all.begin() + static_cast<std::ptrdiff_t>(borders[other]));
      }
    }
    barrier_.wait();  // nobody writes its buffer again while another still reads it
  }

 private:
  const std::uint32_t rank_;
  SpinBarrier& barrier_;
  std::vector<const float*>& buffers_;
};

}  // namespace

void SpinBarrier::wait() {
  const std::uint32_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parties_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_acq_rel);
    round_.notify_all();
    return;
  }
  wait_while(round_, round);
}

RankTeam::RankTeam(std::uint32_t ranks) : barrier_(ranks), buffers_(ranks) {
  BATON_CHECK(ranks >= 1, "a team without ranks");
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    communicators_.push_back(std::make_unique<HostCommunicator>(rank, barrier_, buffers_));
  }
  for (std::uint32_t rank = 1; rank < ranks; ++rank) {
    workers_.emplace_back([this, rank] { work(rank); });
  }
}

RankTeam::~RankTeam() {
  function_ = nullptr;
  generation_.fetch_add(1, std::memory_order_acq_rel);
  generation_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void RankTeam::run_on_all(Function function, const void* context) {
  function_ = function;
  context_ = context;
  unfinished_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_acq_rel);
  generation_.notify_all();
  function(context, 0);
  for (std::uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    wait_while(unfinished_, left);
  }
}

void RankTeam::work(std::uint32_t rank) {
  std::uint32_t seen = 0;
  while (true) {
    wait_while(generation_, seen);
    ++seen;
    if (function_ == nullptr) {
      return;
    }
    function_(context_, rank);
    unfinished_.fetch_sub(1, std::memory_order_acq_rel);
    unfinished_.notify_all();
  }
}

}  // namespace baton::engine
