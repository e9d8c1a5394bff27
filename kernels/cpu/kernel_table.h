// What the backend and the kernels built for one instruction set say to each other: plain structs
// and a table of functions. Each instruction set is one translation unit with its own compiler
// flags, so nothing here may be an inline function of external linkage or use a std:: template: the
// linker would keep one copy of it for all, built for a machine that may lack those instructions.
//
// Every table of `numerics` 0 computes the same bits. A vector is always 16 float lanes, whatever
// the registers.
//
// Thread: functions are pure over their arguments; calls on disjoint outputs may run in parallel.
// Failure: none; the backend has checked shapes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace baton::kernels::cpu {

inline constexpr std::size_t kLanes = 16;
inline constexpr std::size_t kPanelRows = 32;  // output features interleaved in a packed weight
inline constexpr std::size_t kQuantBlock = 32;
inline constexpr std::size_t kAttentionChunk = 256;  // positions whose softmax is taken as one

// Rows of activations in tiles that a kernel keeps in registers: `count` tiles, sizes as equal as
// can be, larger ones first.
struct RowTiles {
  std::size_t rows;
  std::size_t count;
};
[[maybe_unused]] static inline RowTiles make_row_tiles(std::size_t rows, std::size_t largest) {
  return {rows, (rows + largest - 1) / largest};
}
[[maybe_unused]] static inline std::size_t tile_first(const RowTiles& tiles, std::size_t i) {
  const std::size_t longer = tiles.rows % tiles.count;
  return i * (tiles.rows / tiles.count) + (i < longer ? i : longer);
}
[[maybe_unused]] static inline std::size_t tile_size(const RowTiles& tiles, std::size_t i) {
  return tiles.rows / tiles.count + (i < tiles.rows % tiles.count ? 1 : 0);
}

// Quantised activations: tile after tile; in a tile of R rows one record a 32-element block:
//   i32 codes[8][R]   four int8 each: elements 4s .. 4s+3 of row r
//   f32 scale[R]      largest magnitude / 127
//   f32 scaled_sum[R] scale * sum of codes
//   i32 minus_sum[R], minus_sum_low[R], minus_sum_high[R]   of all 32 codes, the first and last 16
inline constexpr std::size_t kActivationWords = 13;  // 32-bit words a row and block

// The same in a record whose codes take `steps` words.
[[maybe_unused]] static constexpr std::size_t activation_words(int steps) {
  return static_cast<std::size_t>(steps) + kActivationWords - 8;
}

struct QuantiseJob {
  const float* x;  // [rows][cols]
  std::size_t cols;
  RowTiles tiles;
  std::size_t first_tile;
  std::size_t end_tile;
  std::uint32_t* out;  // [rows * cols / 32 * kActivationWords]
};

// Activations rounded to BF16: tile after tile; in a tile of R rows one record a pair of elements,
//   u32 pairs[R]      of row r, the even element in the low half; behind the last column a zero
[[maybe_unused]] static constexpr std::size_t pairs_of(std::size_t cols) {
  return (cols + 1) / 2;
}

struct MatmulJob {
  DType dtype;
  const std::byte* weight;  // panels
  std::size_t panel_bytes;
  std::size_t rows;  // output features
  std::size_t cols;
  std::size_t first_panel;
  std::size_t end_panel;
  const std::uint32_t* activations;  // quantised weights, and BF16 ones that take pairs
  const float* x;                    // float weights: [m][cols]
  RowTiles tiles;
  std::size_t first_tile;
  std::size_t end_tile;
  float* y;  // [m][y_stride]
  std::size_t y_stride;
  bool accumulate;
  std::byte* scratch;  // one thread's; bytes: matmul_scratch_bytes(cols)
};
// Activations that are walked once a panel should stay in the second-level cache: so many tiles.
[[maybe_unused]] static inline std::size_t chunk_tiles(std::size_t cols,
                                                       std::size_t tile_rows,
                                                       int steps) {
  constexpr std::size_t kCacheBytes = 384 << 10;
  const std::size_t tile =
      tile_rows * (cols / kQuantBlock) * activation_words(steps) * sizeof(std::uint32_t);
  return kCacheBytes / tile < 8 ? 8 : kCacheBytes / tile;
}
// An expanded panel: up to a float32 an element, and scales; or of bfloat16, with two tiles of
// activations, of columns filled up to 32.
[[maybe_unused]] static inline std::size_t expanded_bytes(std::size_t cols) {
  return cols * kPanelRows * 4 + 8192;
}
// An expanded panel and a chunk's activations in 16 bits, in tiles of at most eight rows.
[[maybe_unused]] static inline std::size_t matmul_scratch_bytes(std::size_t cols) {
  const std::size_t row = (cols / kQuantBlock) * activation_words(16) * sizeof(std::uint32_t);
  const std::size_t chunk = 384 << 10;
  return expanded_bytes(cols) + (64 * row < chunk ? chunk : 64 * row);
}

// What an arena's keys and values are: numbers, or codes with a float32 scale for each head and
// token, keys' and values' after all codes of the block: [2][kv_head][token].
enum class KvCode : std::uint8_t { F32, F16, I8, F8, I16 };

// One kv head, some rows of one sequence.
struct AttentionJob {
  const std::byte* layer;  // first block of the layer
  std::size_t block_bytes;
  const std::uint32_t* blocks;  // block table
  std::uint32_t block_tokens;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
  KvCode code;
  std::uint32_t kv_head;
  std::uint32_t group;  // query heads that share it
  float scale;
  float softcap;
  std::uint32_t window;
  const float* q;  // first row, first head of the group
  std::size_t q_stride;
  float* out;  // the same place of the output
  std::size_t out_stride;
  std::uint32_t first_position;
  std::uint32_t rows;
  std::size_t end_position;  // positions that the block table covers and the slice has written
  std::size_t seen_first;    // the job's own of those, from a multiple of 16 on
  std::size_t seen_end;
  const AttentionJob* next;   // what its thread will probably take then, for fetching; may be null
  std::uint32_t first_chunk;  // attend_chunk: this one
  float* partials;  // attend_chunk: [rows * group][partial_floats] out; merge: [chunks] of those
  std::uint32_t chunks;
  std::size_t partial_stride;  // floats from one chunk's partials to the next
  std::byte* scratch;          // one thread's; bytes: attention_scratch_bytes
};
// The first position that a query at `position` sees.
[[maybe_unused]] static constexpr std::size_t first_seen(std::size_t position,
                                                         std::uint32_t window) {
  return window != 0 && position + 1 > window ? position + 1 - window : 0;
}
[[maybe_unused]] static inline std::size_t dim_pairs(std::size_t head_dim) {
  return (head_dim + 1) / 2;
}
[[maybe_unused]] static inline std::size_t dim_vectors(std::size_t head_dim) {
  return (head_dim + kLanes - 1) / kLanes;
}
// A query's result over some positions: weighted values, filled up to whole vectors, then the
// largest score and the sum of weights.
[[maybe_unused]] static inline std::size_t partial_floats(std::size_t head_dim) {
  return (dim_vectors(head_dim) + 1) * kLanes;
}
// Most rows that one attend_rows takes: what a chunk costs to stage is spread over these.
inline constexpr std::size_t kAttentionQueries = 192;
[[maybe_unused]] static inline std::size_t attention_rows(std::size_t group) {
  return group < kAttentionQueries ? kAttentionQueries / group : 1;
}
// A job's queries in whole tiles of 16.
[[maybe_unused]] static inline std::size_t amx_queries(std::size_t group) {
  return (attention_rows(group) * group + 15) / 16 * 16;
}
// A chunk's codes, queries' codes, partial and running results: 32-bit words, whole cache lines.
[[maybe_unused]] static inline std::size_t attention_scratch_words(std::size_t group,
                                                                   std::size_t head_dim) {
  const std::size_t queries = amx_queries(group);
  const std::size_t staged =
      kAttentionChunk * (dim_pairs(head_dim) + dim_vectors(head_dim) * kLanes / 2 + 2);
  const std::size_t tile = 16 * (kAttentionChunk * 3 / 2 + partial_floats(head_dim));
  const std::size_t words =
      staged + tile + queries * (dim_pairs(head_dim) + partial_floats(head_dim) + 1);
  return (words + 15) / 16 * 16;
}
// And what AMX takes apart into bytes (amx_attention.h): dimensions are filled up to whole tiles.
[[maybe_unused]] static inline std::size_t amx_dims(std::size_t head_dim) {
  return (head_dim + 63) / 64 * 64;
}
[[maybe_unused]] static inline std::size_t attention_scratch_bytes(std::size_t group,
                                                                   std::size_t head_dim) {
  const std::size_t codes =
      amx_queries(group) * amx_dims(head_dim) +
      kAttentionChunk * (amx_dims(head_dim) + dim_vectors(head_dim) * kLanes) +
      16 * kAttentionChunk;
  constexpr std::size_t kResults = 6 * 1024;
  return 4 * attention_scratch_words(group, head_dim) + 2 * codes + kResults + 1024;
}

// Tables of equal numerics compute equal bits.
inline constexpr std::uint32_t kNumericsExact = 0;
inline constexpr std::uint32_t kNumericsAmxBf16 = 1;
inline constexpr std::uint32_t kNumericsAvx512Bf16 = 2;

struct KernelTable {
  const char* name;
  std::uint32_t numerics;
  std::size_t quant_row_tile;
  std::size_t many_rows;            // from so many rows on
  std::size_t many_quant_row_tile;  // tiles of quantised rows are this large
  std::size_t float_row_tile;
  std::size_t pair_row_tile;  // rows of BF16 pairs; 0: BF16 weights are multiplied as floats

  // Where bits may depend on the processor: a hash of what it computes. Null: they do not.
  std::uint32_t (*probe)();

  void (*quantise)(const QuantiseJob& job);
  void (*round_pairs)(const QuantiseJob& job);  // out: [rows * pairs_of(cols)]
  void (*matmul)(const MatmulJob& job);

  void (*rms_norm)(
      const float* x, std::size_t m, std::size_t dim, const float* weight, float eps, float* out);
  void (*rope_interleaved)(float* x,
                           std::size_t heads,
                           std::size_t head_dim,
                           const float* c,
                           const float* s,
                           std::size_t half);
  void (*rope_halves)(float* x,
                      std::size_t heads,
                      std::size_t head_dim,
                      const float* c,
                      const float* s,
                      std::size_t half);
  void (*hadamard)(float* x, std::size_t rows, std::size_t dim, float factor);
  void (*silu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  void (*gelu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  void (*add)(float* x, const float* y, std::size_t n);
  void (*softcap)(float* x, std::size_t n, float cap);
  // out = sum of weights[j] * row rows[j] of x, j ascending.
  void (*mix_rows)(const float* x,
                   std::size_t dim,
                   const std::uint32_t* rows,
                   const float* weights,
                   std::size_t used,
                   float* out);
  void (*to_half)(const float* x, std::size_t n, std::uint16_t* out);

  void (*attend_rows)(const AttentionJob& job);   // all chunks, finished rows
  void (*attend_chunk)(const AttentionJob& job);  // one chunk into partials
  void (*merge_chunks)(const AttentionJob& job);  // partials, ascending, into finished rows
};

[[maybe_unused]] static inline RowTiles quant_row_tiles(const KernelTable& kernels,
                                                        std::size_t rows) {
  return make_row_tiles(
      rows, rows < kernels.many_rows ? kernels.quant_row_tile : kernels.many_quant_row_tile);
}

// Null where this build has no such instruction set.
const KernelTable* scalar_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();
const KernelTable* amx_kernels();          // the process must have asked for tiles: permit_tiles
const KernelTable* amx_bf16_kernels();     // the same, and BF16 weights by TDPBF16PS
const KernelTable* avx512_bf16_kernels();  // as avx512_kernels, but BF16 weights by VDPBF16PS

}  // namespace baton::kernels::cpu
