#include "kernels/cpu/kv_writer.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "common/base/check.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kMaxHeadDim = 1024;  // what `validate` lets a layout have

// Keys go down a column of [head_dim][tokens], values into a row of [tokens][head_dim].
template <class T>
void place(const KvLayout& layout,
           std::byte* block,
           std::size_t kv_head,
           std::size_t token,
           const T* key,
           const T* value) {
  const std::size_t tokens = layout.block_tokens;
  const std::size_t dim = layout.head_dim;
  const std::size_t head = kv_head * dim * tokens;
  T* keys = reinterpret_cast<T*>(block) + head + token;
  for (std::size_t d = 0; d < dim; ++d) {
    keys[d * tokens] = key[d];
  }
  T* values = reinterpret_cast<T*>(block) + layout.kv_heads * dim * tokens + head + token * dim;
  std::memcpy(values, value, dim * sizeof(T));
}

}  // namespace

void write_head(const KernelTable& kernels,
                const KvArenaView& arena,
                const AttentionParams& params,
                const AttentionSlice& slice,
                std::size_t kv_head,
                const float* k,
                const float* v,
                std::size_t stride) {
  const KvLayout& layout = arena.layout;
  BATON_CHECK(layout.head_dim <= kMaxHeadDim, "head_dim beyond what a layout may have");
  std::array<std::uint16_t, kMaxHeadDim> key;
  std::array<std::uint16_t, kMaxHeadDim> value;
  for (std::size_t r = 0; r < slice.num_rows; ++r) {
    const std::size_t position = slice.first_position + r;
    std::byte* block = arena.block(params.layer, slice.blocks[position / layout.block_tokens]);
    const std::size_t at = (slice.first_row + r) * stride + kv_head * layout.head_dim;
    const std::size_t token = position % layout.block_tokens;
    if (layout.dtype == KvDType::F32) {
      place<float>(layout, block, kv_head, token, k + at, v + at);
      continue;
    }
    kernels.to_half(k + at, layout.head_dim, key.data());
    kernels.to_half(v + at, layout.head_dim, value.data());
    place<std::uint16_t>(layout, block, kv_head, token, key.data(), value.data());
  }
}

}  // namespace baton::kernels::cpu
