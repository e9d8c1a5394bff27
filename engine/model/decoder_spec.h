// What a decoder-only model computes, as plain values: the table that one forward pass is driven
// by. Each source of models (GGUF metadata, for one) has one function that fills it and bounds
// every number; nothing behind it asks which family a model is of.
//
// Thread: a value. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/types/kv_layout.h"
#include "kernels/ops.h"

namespace baton::engine {

// The activation of the feed-forward's gate.
enum class GateFunction : std::uint8_t { Silu, Gelu };

// One rotary embedding. It turns the first 2 * frequencies.size() dimensions of a head.
struct RopeSpec {
  kernels::RopeStyle style = kernels::RopeStyle::Interleaved;
  std::vector<double> frequencies;  // radians a position, scaling included
};

struct LayerSpec {
  std::uint32_t window = 0;  // sees positions (p - window, p]; 0: all
  std::uint32_t rope = 0;    // index into DecoderSpec::ropes
};

struct DecoderSpec {
  std::string architecture;
  std::uint32_t dim = 0;  // width of the residual stream
  std::uint32_t ffn = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t context = 0;
  float eps = 0.0F;  // of the norms
  float embedding_scale = 1.0F;
  float attention_scale = 0.0F;
  GateFunction gate = GateFunction::Silu;
  bool qk_norm = false;     // queries and keys are normed per head, before they are turned
  bool post_norms = false;  // what a block adds to the stream is normed first
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
};

inline KvLayout kv_layout(const DecoderSpec& spec, std::uint32_t block_tokens) {
  return {.layers = static_cast<std::uint32_t>(spec.layers.size()),
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .block_tokens = block_tokens};
}

struct IndexRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// The part of every layer that one rank computes: whole heads with their keys and values, and some
// features of the feed-forward. The outputs of the attention and down projections are then partial
// sums, which the ranks add up (Decoder::project); all else each rank computes for itself.
struct RankShare {
  IndexRange heads;
  IndexRange kv_heads;
  IndexRange ffn;
};

inline RankShare whole_model(const DecoderSpec& spec) {
  return {{0, spec.heads}, {0, spec.kv_heads}, {0, spec.ffn}};
}

// b^(-2i/n) for i below n/2, with the same bits on every machine. n: dimensions turned.
std::vector<double> rope_frequencies(std::uint32_t dimensions, double base);

}  // namespace baton::engine
