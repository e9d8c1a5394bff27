#include "kernels/cuda/attention_runner.h"

#include <bit>

#include "common/base/check.h"

namespace baton::kernels::cuda {

void AttentionRunner::run(const KvPages& pages,
                          const AttentionParams& params,
                          const PlannedTiles& tiles,
                          const float* q,
                          std::size_t q_stride,
                          float* out) {
  BATON_CHECK(params.head_dim == pages.head_dim && params.head_dim <= kMostHeadDim,
              "attention parameters do not fit the arena");
  // To powers of two: what grows with every step would end all recordings with every step.
  const std::size_t partials =
      partial_floats(std::bit_ceil(tiles.num_decode), params.kv_heads, params.head_dim);
  launch_attention(device_.stream(),
                   {.pages = pages,
                    .tiles = nullptr,
                    .q = q,
                    .out = out,
                    .partials = partials_.at_least(partials),
                    .q_stride = q_stride,
                    .out_stride = std::size_t{params.heads} * params.head_dim,
                    .first_kv_head = params.first_kv_head,
                    .kv_heads = params.kv_heads,
                    .group = params.heads / params.kv_heads,
                    .window = params.window,
                    .scale = params.scale,
                    .softcap = params.softcap},
                   tiles);
}

}  // namespace baton::kernels::cuda
