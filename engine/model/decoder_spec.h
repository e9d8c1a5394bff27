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
  std::vector<double> frequencies;       // radians a position, scaling included
  std::vector<double> long_frequencies;  // in their place for contexts above `long_after`; or empty
  std::uint32_t long_after = 0;
  double magnitude = 1.0;  // of what is turned
};

// A mixture of experts in place of one feed-forward; count 0: none.
struct ExpertSpec {
  std::uint32_t count = 0;
  std::uint32_t used = 0;    // by a row
  bool renormalise = false;  // the weights of those used add up to 1
};

struct LayerSpec {
  std::uint32_t window = 0;  // sees positions (p - window, p]; 0: all
  std::uint32_t rope = 0;    // index into DecoderSpec::ropes
};

struct DecoderSpec {
  std::string architecture;
  std::uint32_t dim = 0;  // width of the residual stream
  std::uint32_t ffn = 0;  // features of the feed-forward, or of each expert
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t context = 0;
  float eps = 0.0F;  // of the norms
  float embedding_scale = 1.0F;
  float attention_scale = 0.0F;
  float attention_softcap = 0.0F;  // 0: off
  float logit_softcap = 0.0F;      // 0: off
  GateFunction gate = GateFunction::Silu;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention
  bool qk_norm = false;      // queries and keys are normed per head, before they are turned
  bool post_norms = false;   // what a block adds to the stream is normed first
  ExpertSpec experts;
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

// The pieces of K that a projection is summed over, a chain each, and how ranks share them.
struct PartialSums {
  std::vector<IndexRange> own;  // this rank's: KV heads, or features of the feed-forward
  std::vector<std::uint32_t> borders{0, 1};  // rank r has pieces [borders[r], borders[r + 1])

  std::uint32_t count() const { return borders.back(); }
};

// The part of every layer that one rank computes: whole heads with their keys and values, and some
// features of the feed-forward, in one piece for each partial sum of the attention and down
// projections, where the ranks meet (Decoder::project); and some rows of the embedding and of the
// head. All else each rank computes for itself.
struct RankShare {
  std::uint32_t rank = 0;
  IndexRange heads;
  IndexRange kv_heads;
  IndexRange ffn;
  PartialSums attention;             // pieces of kv_heads
  PartialSums feed_forward;          // pieces of ffn
  std::vector<std::uint32_t> vocab;  // rank r has tokens [vocab[r], vocab[r + 1])

  IndexRange own_vocab() const { return {vocab[rank], vocab[rank + 1] - vocab[rank]}; }
};

RankShare whole_model(const DecoderSpec& spec, std::uint32_t vocab);

// Limits the context and settles which frequencies its ropes have.
void limit_context(DecoderSpec& spec, std::uint32_t context);

// b^(-2i/n) for i below n/2, with the same bits on every machine. n: dimensions turned.
std::vector<double> rope_frequencies(std::uint32_t dimensions, double base);

// YaRN (Peng et al. 2023, arXiv 2309.00071): frequencies that turn less than `slow` times within
// the original context are divided by `factor`, those that turn more than `fast` times stay, and
// between the two lies a ramp.
struct YarnScaling {
  double factor = 1.0;
  double base = 1e4;
  double original_context = 0.0;
  double fast = 32.0;
  double slow = 1.0;
};
void scale_yarn(const YarnScaling& yarn, std::vector<double>& frequencies);
// What YaRN multiplies queries and keys by, to keep attention as sharp.
double yarn_magnitude(double factor);

}  // namespace baton::engine
