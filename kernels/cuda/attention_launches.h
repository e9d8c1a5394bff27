// Launches of the attention kernels. Pointers are the device's.
//
// Thread: the stream's owner. Failure: a head wider than kMostHeadDim ends the process.
#pragma once

#include <cstddef>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/stream.h"

namespace baton::kernels::cuda {

// The tiles of an AttentionPlan on the device; `args.tiles` is not looked at.
struct PlannedTiles {
  const AttentionTile* prefill = nullptr;
  const AttentionTile* decode = nullptr;
  const AttentionTile* join = nullptr;
  std::size_t num_prefill = 0;
  std::size_t num_decode = 0;
  std::size_t num_join = 0;
};

// Of heads of up to kDim (64, 128, 256): one attention_*_launches.cu each, so that nvcc works on
// several at once.
template <unsigned kDim>
void launch_heads(Stream stream, const AttentionArgs& args, const PlannedTiles& tiles);

void launch_attention(Stream stream, const AttentionArgs& args, const PlannedTiles& tiles);

}  // namespace baton::kernels::cuda
