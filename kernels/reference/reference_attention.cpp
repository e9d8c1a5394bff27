#include "kernels/reference/reference_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/half.h"

namespace baton::kernels::reference {
namespace {

// Reads and writes single elements of one layer of an arena, found by absolute position.
class LayerKv {
 public:
  LayerKv(const KvArenaView& arena, const AttentionParams& params, std::span<const BlockId> blocks)
      : arena_(arena), params_(params), blocks_(blocks) {}

  float key(std::size_t position, std::size_t head, std::size_t dim) const {
    return load(key_index(position, head, dim), position);
  }
  float value(std::size_t position, std::size_t head, std::size_t dim) const {
    return load(value_index(position, head, dim), position);
  }
  void set_key(std::size_t position, std::size_t head, std::size_t dim, float x) const {
    store(key_index(position, head, dim), position, x);
  }
  void set_value(std::size_t position, std::size_t head, std::size_t dim, float x) const {
    store(value_index(position, head, dim), position, x);
  }

 private:
  std::size_t key_index(std::size_t position, std::size_t head, std::size_t dim) const {
    const KvLayout& layout = arena_.layout;
    return (head * layout.head_dim + dim) * layout.block_tokens + position % layout.block_tokens;
  }
  std::size_t value_index(std::size_t position, std::size_t head, std::size_t dim) const {
    const KvLayout& layout = arena_.layout;
    const std::size_t keys = std::size_t{layout.kv_heads} * layout.head_dim * layout.block_tokens;
    return keys + (head * layout.block_tokens + position % layout.block_tokens) * layout.head_dim +
           dim;
  }
  std::byte* block_of(std::size_t position) const {
    return arena_.block(params_.layer, blocks_[position / arena_.layout.block_tokens]);
  }
  float load(std::size_t index, std::size_t position) const {
    const std::byte* block = block_of(position);
    if (arena_.layout.dtype == KvDType::F32) {
      float x;
      std::memcpy(&x, block + index * sizeof(x), sizeof(x));
      return x;
    }
    std::uint16_t x;
    std::memcpy(&x, block + index * sizeof(x), sizeof(x));
    return half_to_float(x);
  }
  void store(std::size_t index, std::size_t position, float x) const {
    std::byte* block = block_of(position);
    if (arena_.layout.dtype == KvDType::F32) {
      std::memcpy(block + index * sizeof(x), &x, sizeof(x));
      return;
    }
    const std::uint16_t half = float_to_half(x);
    std::memcpy(block + index * sizeof(half), &half, sizeof(half));
  }

  const KvArenaView& arena_;
  const AttentionParams& params_;
  std::span<const BlockId> blocks_;
};

void check(const KvArenaView& arena, const AttentionParams& params, const AttentionSlice& slice) {
  BATON_CHECK(params.layer < arena.layout.layers && params.kv_heads == arena.layout.kv_heads &&
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
  const std::size_t kv_head = head / (params.heads / params.kv_heads);
  const std::size_t first =
      params.window != 0 && position + 1 > params.window ? position + 1 - params.window : 0;
  std::vector<double> scores(position + 1 - first);
  double highest = -HUGE_VAL;
  for (std::size_t p = first; p <= position; ++p) {
    double sum = 0;
    for (std::size_t d = 0; d < params.head_dim; ++d) {
      sum += static_cast<double>(q[d]) * kv.key(p, kv_head, d);
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
    for (std::size_t d = 0; d < params.head_dim; ++d) {
      sums[d] += scores[p - first] * kv.value(p, kv_head, d);
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
        for (std::size_t d = 0; d < params.head_dim; ++d) {
          const std::size_t i = row + h * params.head_dim + d;
          kv.set_key(slice.first_position + r, h, d, k[i]);
          kv.set_value(slice.first_position + r, h, d, v[i]);
        }
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
