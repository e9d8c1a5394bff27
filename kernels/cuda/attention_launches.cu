#include <cstdlib>

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/launch.h"

namespace baton::kernels::cuda {
namespace {

template <unsigned kDim, bool kBfloat>
void launch_tiles(Stream stream, AttentionArgs args, const PlannedTiles& tiles) {
  if (tiles.num_prefill > 0) {
    args.tiles = tiles.prefill;
    launch(stream,
           attend_tiles<kDim, kBfloat>,
           attend_tiles_shape<kDim>(args, tiles.num_prefill),
           args);
  }
  if (tiles.num_decode > 0) {
    args.tiles = tiles.decode;
    launch(stream,
           attend_range<kDim, kBfloat>,
           attend_range_shape<kDim>(args, tiles.num_decode),
           args);
    args.tiles = tiles.join;
    launch(stream, join_ranges, join_ranges_shape(args, tiles.num_join), args);
  }
}

template <bool kBfloat>
void launch_width(Stream stream, const AttentionArgs& args, const PlannedTiles& tiles) {
  if (args.pages.head_dim <= 64) {
    return launch_tiles<64, kBfloat>(stream, args, tiles);
  }
  if (args.pages.head_dim <= 128) {
    return launch_tiles<128, kBfloat>(stream, args, tiles);
  }
  if (args.pages.head_dim <= kMostHeadDim) {
    return launch_tiles<kMostHeadDim, kBfloat>(stream, args, tiles);
  }
  std::abort();  // the backend refuses such an arena
}

}  // namespace

void launch_attention(Stream stream, const AttentionArgs& args, const PlannedTiles& tiles) {
  if (args.pages.element == KvElement::Bfloat) {
    launch_width<true>(stream, args, tiles);
  } else {
    launch_width<false>(stream, args, tiles);
  }
}

}  // namespace baton::kernels::cuda
