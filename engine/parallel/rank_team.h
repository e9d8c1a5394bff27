// The ranks of one model as threads of this process, and the communicator between them: memory that
// they share and a barrier. The caller is rank 0. Workers wait between steps: they spin a while,
// then sleep.
//
// Owner: a tensor-parallel runner. Thread: `run` is called by one thread at a time; it returns when
// every rank has finished. Failure: making the threads may throw std::system_error.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/parallel/communicator.h"

namespace baton::engine {

// A barrier that is used again and again: who comes last releases the others.
class SpinBarrier {
 public:
  explicit SpinBarrier(std::uint32_t parties) : parties_(parties) {}
  void wait();

 private:
  const std::uint32_t parties_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> round_{0};
};

class RankTeam {
 public:
  explicit RankTeam(std::uint32_t ranks);
  RankTeam(const RankTeam&) = delete;
  RankTeam& operator=(const RankTeam&) = delete;
  ~RankTeam();

  std::uint32_t size() const { return static_cast<std::uint32_t>(communicators_.size()); }
  Communicator& communicator(std::uint32_t rank) { return *communicators_[rank]; }

  // Calls body(rank) for every rank, at the same time, each on its own thread.
  template <class Body>
  void run(const Body& body) {
    run_on_all(
        [](const void* context, std::uint32_t rank) { (*static_cast<const Body*>(context))(rank); },
        &body);
  }

 private:
  using Function = void (*)(const void* context, std::uint32_t rank);

  void run_on_all(Function function, const void* context);
  void work(std::uint32_t rank);

  SpinBarrier barrier_;                // of the communicators
  std::vector<const float*> buffers_;  // all_gather: one a rank
  std::vector<std::unique_ptr<Communicator>> communicators_;

  // Written by the caller before it raises generation_; null function: stop.
  Function function_ = nullptr;
  const void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> generation_{0};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
  std::vector<std::thread> workers_;  // ranks 1, 2, ...
};

}  // namespace baton::engine
