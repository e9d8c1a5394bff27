#include "kernels/reference/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/half.h"
#include "kernels/kv_codes.h"

namespace baton::kernels::reference {
namespace {

// Reads and writes rows of one layer of an arena, found by absolute position.
class LayerKv {
 public:
  LayerKv(const KvArenaView& arena, const AttentionParams& params, std::span<const BlockId> blocks)
      : arena_(arena), params_(params), blocks_(blocks) {}

  // A token's key or value of one head. row: [head_dim]
  void read(bool value, std::size_t position, std::size_t head, float* row) const {
    const std::byte* block = block_of(position);
    float scale = 1.0F;
    if (arena_.layout.scale_bytes() != 0) {
      std::memcpy(&scale, block + scale_offset(value, position, head), sizeof(scale));
    }
    for (std::size_t d = 0; d < arena_.layout.head_dim; ++d) {
      row[d] = load(block, index(value, position, head, d)) * scale;
    }
  }

  void write(bool value, std::size_t position, std::size_t head, const float* row) const {
    const KvLayout& layout = arena_.layout;
    std::byte* block = block_of(position);
    std::vector<std::uint8_t> bytes(layout.head_dim);
    std::vector<std::int16_t> shorts(layout.head_dim);
    if (layout.scale_bytes() != 0) {
      const float scale =
          layout.dtype == KvDType::I16 ? to_int16(row, layout.head_dim, shorts.data())
          : layout.dtype == KvDType::I8
              ? to_int8(row, layout.head_dim, reinterpret_cast<std::int8_t*>(bytes.data()))
              : to_e4m3(row, layout.head_dim, bytes.data());
      std::memcpy(block + scale_offset(value, position, head), &scale, sizeof(scale));
    }
    for (std::size_t d = 0; d < layout.head_dim; ++d) {
      const std::uint16_t half = float_to_half(row[d]);
      const void* element = layout.dtype == KvDType::F32   ? static_cast<const void*>(row + d)
                            : layout.dtype == KvDType::F16 ? static_cast<const void*>(&half)
                            : layout.dtype == KvDType::I16
                                ? static_cast<const void*>(shorts.data() + d)
                                : bytes.data() + d;
      const std::size_t size = layout.element_bytes();
      std::memcpy(block + index(value, position, head, d) * size, element, size);
    }
  }

 private:
  std::size_t index(bool value, std::size_t position, std::size_t head, std::size_t dim) const {
    const KvLayout& layout = arena_.layout;
    const std::size_t token = position % layout.block_tokens;
    if (!value) {
      return (head * layout.head_dim + dim) * layout.block_tokens + token;
    }
    const std::size_t keys = std::size_t{layout.kv_heads} * layout.head_dim * layout.block_tokens;
    return keys + (head * layout.block_tokens + token) * layout.head_dim + dim;
  }
  std::size_t scale_offset(bool value, std::size_t position, std::size_t head) const {
    const KvLayout& layout = arena_.layout;
    const std::size_t row = (value ? layout.kv_heads : 0) + head;
    return layout.scales_at() +
           (row * layout.block_tokens + position % layout.block_tokens) * layout.scale_bytes();
  }
  std::byte* block_of(std::size_t position) const {
    return arena_.block(params_.layer, blocks_[position / arena_.layout.block_tokens]);
  }
  float load(const std::byte* block, std::size_t index) const {
    switch (arena_.layout.dtype) {
      case KvDType::F32: {
        float x;
        std::memcpy(&x, block + index * sizeof(x), sizeof(x));
        return x;
      }
      case KvDType::F16: {
        std::uint16_t x;
        std::memcpy(&x, block + index * sizeof(x), sizeof(x));
        return half_to_float(x);
      }
      case KvDType::I16: {
        std::int16_t x;
        std::memcpy(&x, block + index * sizeof(x), sizeof(x));
        return static_cast<float>(x);
      }
      case KvDType::I8:
        return static_cast<float>(static_cast<std::int8_t>(block[index]));
      case KvDType::F8:
        return e4m3_to_float(static_cast<std::uint8_t>(block[index]));
    }
    return 0.0F;
  }

  const KvArenaView& arena_;
  const AttentionParams& params_;
  std::span<const BlockId> blocks_;
};

void check(const KvArenaView& arena, const AttentionParams& params, const AttentionSlice& slice) {
  BATON_CHECK(params.layer < arena.layout.layers && params.kv_heads > 0 &&
                  params.first_kv_head + params.kv_heads <= arena.layout.kv_heads &&
                  params.head_dim == arena.layout.head_dim && params.heads % params.kv_heads == 0,
              "attention parameters do not fit the arena");
  BATON_CHECK(slice.blocks.size() >= arena.layout.blocks_for(slice.first_position + slice.num_rows),
              "the block table is too short for the slice");
}

// One query row of one head over positions [first, position].
void attend(const LayerKv& kv,
            const AttentionParams& params,
            std::size_t head,
            std::size_t position,
            const float* q,
            float* out) {
  const std::size_t kv_head = params.first_kv_head + head / (params.heads / params.kv_heads);
  const std::size_t first =
      params.window != 0 && position + 1 > params.window ? position + 1 - params.window : 0;
  std::vector<double> scores(position + 1 - first);
  std::vector<float> row(params.head_dim);
  double highest = -HUGE_VAL;
  for (std::size_t p = first; p <= position; ++p) {
    kv.read(false, p, kv_head, row.data());
    double sum = 0;
    for (std::size_t d = 0; d < params.head_dim; ++d) {
      sum += static_cast<double>(q[d]) * row[d];
    }
    sum *= params.scale;
    if (params.softcap != 0.0F) {
      sum = params.softcap * std::tanh(sum / params.softcap);
    }
    scores[p - first] = sum;
    highest = std::max(highest, sum);
  }
  double total = 0;
  for (double& score : scores) {
    score = std::exp(score - highest);
    total += score;
  }
  std::vector<double> sums(params.head_dim, 0.0);
  for (std::size_t p = first; p <= position; ++p) {
    kv.read(true, p, kv_head, row.data());
    for (std::size_t d = 0; d < params.head_dim; ++d) {
      sums[d] += scores[p - first] * row[d];
    }
  }
  for (std::size_t d = 0; d < params.head_dim; ++d) {
    out[d] = static_cast<float>(sums[d] / total);
  }
}

}  // namespace

void write_kv(const KvArenaView& arena,
              const AttentionParams& params,
              std::span<const AttentionSlice> slices,
              const float* k,
              const float* v,
              std::size_t stride) {
  for (const AttentionSlice& slice : slices) {
    check(arena, params, slice);
    const LayerKv kv(arena, params, slice.blocks);
    for (std::size_t r = 0; r < slice.num_rows; ++r) {
      const std::size_t row = (slice.first_row + r) * stride;
      for (std::size_t h = 0; h < params.kv_heads; ++h) {
        const std::size_t at = row + h * params.head_dim;
        kv.write(false, slice.first_position + r, params.first_kv_head + h, k + at);
        kv.write(true, slice.first_position + r, params.first_kv_head + h, v + at);
      }
    }
  }
}

void attention(const KvArenaView& arena,
               const AttentionParams& params,
               std::span<const AttentionSlice> slices,
               const float* q,
               std::size_t q_stride,
               float* out) {
  const std::size_t out_stride = std::size_t{params.heads} * params.head_dim;
  for (const AttentionSlice& slice : slices) {
    check(arena, params, slice);
    const LayerKv kv(arena, params, slice.blocks);
    for (std::size_t r = 0; r < slice.num_rows; ++r) {
      const std::size_t row = slice.first_row + r;
      for (std::size_t h = 0; h < params.heads; ++h) {
        attend(kv,
               params,
               h,
               slice.first_position + r,
               q + row * q_stride + h * params.head_dim,
               out + row * out_stride + h * params.head_dim);
      }
    }
  }
}

}  // namespace baton::kernels::reference
