#include "kernels/cuda/attention_runner.h"

#include "common/base/check.h"
#include "kernels/cuda/attention_launches.h"

namespace baton::kernels::cuda {

void AttentionRunner::run(const KvPages& pages,
                          const AttentionParams& params,
                          std::span<const AttentionSlice> slices,
                          const float* q,
                          std::size_t q_stride,
                          float* out) {
  BATON_CHECK(params.kv_heads > 0 && params.heads % params.kv_heads == 0 &&
                  params.head_dim == pages.head_dim && params.head_dim <= kMostHeadDim,
              "attention parameters do not fit the arena");
  plan_ = {};
  std::uint32_t table = 0;
  const std::uint32_t group = params.heads / params.kv_heads;
  for (const AttentionSlice& slice : slices) {
    if (slice.num_rows > 0) {
      plan_.add(static_cast<std::uint32_t>(slice.first_row),
                static_cast<std::uint32_t>(slice.num_rows),
                slice.first_position,
                table,
                group,
                params.window);
    }
    table += static_cast<std::uint32_t>(slice.blocks.size());
  }
  const AttentionArgs args{
      .pages = pages,
      .tiles = nullptr,
      .q = q,
      .out = out,
      .partials = partials_.at_least(plan_.partial_floats(params.kv_heads, params.head_dim)),
      .q_stride = q_stride,
      .out_stride = std::size_t{params.heads} * params.head_dim,
      .first_kv_head = params.first_kv_head,
      .kv_heads = params.kv_heads,
      .group = group,
      .window = params.window,
      .scale = params.scale,
      .softcap = params.softcap};
  launch_attention(device_.stream(),
                   args,
                   {.prefill = prefill_.filled(plan_.prefill.data(), plan_.prefill.size()),
                    .decode = decode_.filled(plan_.decode.data(), plan_.decode.size()),
                    .join = join_.filled(plan_.join.data(), plan_.join.size()),
                    .num_prefill = plan_.prefill.size(),
                    .num_decode = plan_.decode.size(),
                    .num_join = plan_.join.size()});
}

}  // namespace baton::kernels::cuda
