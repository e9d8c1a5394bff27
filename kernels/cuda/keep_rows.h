// Moves rows to the front of a matrix in place. A thread a column, which takes the rows in
// ascending order: a row is read before what it is replaced by is written.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kKeepThreads = 128;

struct KeepRowsArgs {
  float* x = nullptr;                   // [rows][dim]
  const std::uint32_t* rows = nullptr;  // [count], ascending
  std::uint32_t count = 0;
  std::uint32_t dim = 0;
};

// Grid: x: dim / 128.
[[maybe_unused]] static BATON_KERNEL(kKeepThreads) keep_rows(KeepRowsArgs args) {
  const unsigned column = block_index() * kKeepThreads + thread_index();
  if (column >= args.dim) {
    return;
  }
  for (std::size_t to = 0; to < args.count; ++to) {
    args.x[to * args.dim + column] = args.x[std::size_t{args.rows[to]} * args.dim + column];
  }
}

}  // namespace baton::kernels::cuda
