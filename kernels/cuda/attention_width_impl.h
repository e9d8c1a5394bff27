// What launch_heads does, for the files that instantiate it.
//
// Thread: the stream's owner. Failure: none.
#pragma once

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/launch.h"

namespace baton::kernels::cuda {

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

template <unsigned kDim>
void launch_heads(Stream stream, const AttentionArgs& args, const PlannedTiles& tiles) {
  // A block of sm_80 has at most 163 KiB.
  static_assert(sizeof(PrefillShared<kDim>) <= 163 * 1024);
  static_assert(sizeof(DecodeShared<kDim>) <= 163 * 1024);
  if (args.pages.element == KvElement::Bfloat) {
    launch_tiles<kDim, true>(stream, args, tiles);
  } else {
    launch_tiles<kDim, false>(stream, args, tiles);
  }
}

}  // namespace baton::kernels::cuda
