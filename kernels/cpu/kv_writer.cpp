#include "kernels/cpu/kv_writer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "common/base/check.h"
#include "kernels/kv_codes.h"

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

void place_scales(const KvLayout& layout,
                  std::byte* block,
                  std::size_t kv_head,
                  std::size_t token,
                  float key,
                  float value) {
  auto* scales = reinterpret_cast<float*>(block + layout.scales_at());
  const std::size_t at = kv_head * layout.block_tokens + token;
  scales[at] = key;
  scales[std::size_t{layout.kv_heads} * layout.block_tokens + at] = value;
}

// One token's key and value of one head in the arena's element type.
class TokenWriter {
 public:
  TokenWriter(const KernelTable& kernels, const KvLayout& layout)
      : kernels_(kernels), layout_(layout) {
    BATON_CHECK(layout.head_dim <= kMaxHeadDim, "head_dim beyond what a layout may have");
  }

  void write(std::byte* block,
             std::size_t kv_head,
             std::size_t token,
             const float* key,
             const float* value) {
    const std::size_t dim = layout_.head_dim;
    switch (layout_.dtype) {
      case KvDType::F32:
        return place(layout_, block, kv_head, token, key, value);
      case KvDType::F16:
        kernels_.to_half(key, dim, halves_[0].data());
        kernels_.to_half(value, dim, halves_[1].data());
        return place(layout_, block, kv_head, token, halves_[0].data(), halves_[1].data());
      case KvDType::I8: {
        const float key_scale = to_int8(key, dim, ints_[0].data());
        const float value_scale = to_int8(value, dim, ints_[1].data());
        place(layout_, block, kv_head, token, ints_[0].data(), ints_[1].data());
        return place_scales(layout_, block, kv_head, token, key_scale, value_scale);
      }
      case KvDType::I16: {
        const float key_scale = to_int16(key, dim, shorts_[0].data());
        const float value_scale = to_int16(value, dim, shorts_[1].data());
        place(layout_, block, kv_head, token, shorts_[0].data(), shorts_[1].data());
        return place_scales(layout_, block, kv_head, token, key_scale, value_scale);
      }
      case KvDType::F8: {
        const float key_scale = to_e4m3(key, dim, floats_[0].data());
        const float value_scale = to_e4m3(value, dim, floats_[1].data());
        place(layout_, block, kv_head, token, floats_[0].data(), floats_[1].data());
        return place_scales(layout_, block, kv_head, token, key_scale, value_scale);
      }
    }
  }

 private:
  const KernelTable& kernels_;
  const KvLayout& layout_;
  // Key and value; which of them is used depends on the type.
  std::array<std::array<std::uint16_t, kMaxHeadDim>, 2> halves_;
  std::array<std::array<std::int16_t, kMaxHeadDim>, 2> shorts_;
  std::array<std::array<std::int8_t, kMaxHeadDim>, 2> ints_;
  std::array<std::array<std::uint8_t, kMaxHeadDim>, 2> floats_;
};

}  // namespace

void write_rows(const KernelTable& kernels,
                const KvArenaView& arena,
                const AttentionParams& params,
                std::span<const AttentionSlice> slices,
                std::size_t first,
                std::size_t count,
                const float* k,
                const float* v,
                std::size_t stride) {
  const KvLayout& layout = arena.layout;
  TokenWriter writer(kernels, layout);
  std::size_t before = 0;  // tokens of the slices passed
  for (const AttentionSlice& slice : slices) {
    const std::size_t begin = std::max(first, before);
    const std::size_t end = std::min(first + count, before + slice.num_rows);
    for (std::size_t at = begin; at < end; ++at) {
      const std::size_t r = at - before;
      const std::size_t position = slice.first_position + r;
      std::byte* block = arena.block(params.layer, slice.blocks[position / layout.block_tokens]);
      const std::size_t row = (slice.first_row + r) * stride;
      for (std::uint32_t head = 0; head < params.kv_heads; ++head) {
        writer.write(block,
                     params.first_kv_head + head,
                     position % layout.block_tokens,
                     k + row + head * layout.head_dim,
                     v + row + head * layout.head_dim);
      }
    }
    before += slice.num_rows;
  }
}

}  // namespace baton::kernels::cpu
