#include <cstdlib>

#include "kernels/cuda/attention_launches.h"

namespace baton::kernels::cuda {

void launch_attention(Stream stream, const AttentionArgs& args, const PlannedTiles& tiles) {
  if (args.pages.head_dim <= 64) {
    return launch_heads<64>(stream, args, tiles);
  }
  if (args.pages.head_dim <= 128) {
    return launch_heads<128>(stream, args, tiles);
  }
  if (args.pages.head_dim <= kMostHeadDim) {
    return launch_heads<kMostHeadDim>(stream, args, tiles);
  }
  std::abort();  // the backend refuses such an arena
}

}  // namespace baton::kernels::cuda
