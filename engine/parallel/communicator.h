// What the ranks of one model exchange during a step when several compute it together (tensor
// parallel, Shoeybi et al. 2019, arXiv 1909.08053).
//
// Sums are never reduced on the way: each rank gets every rank's partial sums and adds them up in
// one order, that of the shards, so that one, two or four ranks give the same bits.
//
// Owner: the team that runs the ranks. Thread: one communicator a rank, used by that rank's thread
// alone; each call returns when all ranks have made the same call. Failure: none on a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton::engine {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t size() const = 0;
  // What every rank wrote to memory before is seen by every rank after.
  virtual void barrier() = 0;
  // `all` is cut at `borders` (size() + 1 ascending places, the last all.size()); this rank has
  // written [borders[rank()], borders[rank() + 1]) and gets the other ranks' parts.
  virtual void all_gather(std::span<float> all, std::span<const std::size_t> borders) = 0;
};

}  // namespace baton::engine
