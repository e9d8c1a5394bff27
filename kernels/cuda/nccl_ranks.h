// How the ranks of one model, each a thread of this process with a GPU of its own, bring each other
// their parts: NCCL copies them from device to device in the order of each rank's stream. Nothing
// is added on the way, so the order of a sum is the reader's (engine/parallel/communicator.h).
//
// Plain all-reduce is not used: in which order NCCL adds depends on where a number lies in the
// buffer, so a row's bits would depend on the rows beside it.
//
// A rank whose call failed cannot go on, and the others would wait for it for ever: the caller ends
// the process, as for any device that fails (device_memory.h).
//
// Owner: each rank is owned by that rank's backend; the last one to go closes NCCL. Thread: a
// rank's calls come from its thread, with its device chosen. Failure: Unavailable in NCCL's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/error.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/stream.h"

namespace baton::kernels::cuda {

class NcclTeam;

class NcclRank {
 public:
  NcclRank(std::shared_ptr<NcclTeam> team, std::uint32_t rank);
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank();

  // `all` is device memory, cut at `borders` (a place for each rank's beginning, then all.size()):
  // this rank's part is written before on `stream`, the others' are there behind it on `stream`.
  // All ranks make the same calls.
  Status all_gather(std::span<float> all, std::span<const std::size_t> borders, Stream stream);

 private:
  const std::shared_ptr<NcclTeam> team_;
  const std::uint32_t rank_;
};

// Ranks 0, 1, … on these GPUs. The names in errors are the GPUs' numbers.
Result<std::vector<std::unique_ptr<NcclRank>>> join_ranks(const NcclApi& api,
                                                          std::span<const int> devices);

}  // namespace baton::kernels::cuda
