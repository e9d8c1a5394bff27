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
  return tile_first(tiles, i + 1) - tile_first(tiles, i);
}

// Quantised activations: tile after tile; in a tile of R rows one record a 32-element block:
//   i32 codes[8][R]   four int8 each: elements 4s .. 4s+3 of row r
//   f32 scale[R]      largest magnitude / 127
//   f32 scaled_sum[R] scale * sum of codes
//   i32 minus_sum[R], minus_sum_low[R], minus_sum_high[R]   of all 32 codes, the first and last 16
inline constexpr std::size_t kActivationWords = 13;  // 32-bit words a row and block

struct QuantiseJob {
  const float* x;  // [rows][cols]
  std::size_t cols;
  RowTiles tiles;
  std::size_t first_tile;
  std::size_t end_tile;
  std::uint32_t* out;  // [rows * cols / 32 * kActivationWords]
};

struct MatmulJob {
  DType dtype;
  const std::byte* weight;  // panels
  std::size_t panel_bytes;
  std::size_t rows;  // output features
  std::size_t cols;
  std::size_t first_panel;
  std::size_t end_panel;
  const std::uint32_t* activations;  // quantised weights
  const float* x;                    // float weights: [m][cols]
  RowTiles tiles;
  std::size_t first_tile;
  std::size_t end_tile;
  float* y;  // [m][y_stride]
  std::size_t y_stride;
  bool accumulate;
  std::byte* scratch;  // one thread's; bytes: matmul_scratch_bytes(cols)
};
// An expanded panel: a byte or float32 an element and its scales; or of bfloat16, with two tiles of
// activations, of columns filled up to 32.
[[maybe_unused]] static inline std::size_t matmul_scratch_bytes(std::size_t cols) {
  return cols * kPanelRows * 4 + 8192;
}

// One kv head, some rows of one sequence.
struct AttentionJob {
  const std::byte* layer;  // first block of the layer
  std::size_t block_bytes;
  const std::uint32_t* blocks;  // block table
  std::uint32_t block_tokens;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
  bool half;  // element type of the arena: f16, else f32
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
  std::uint32_t first_chunk;  // attend_chunk: this one
  float* partials;  // attend_chunk: [rows * group][head_dim + 2] out; merge: [chunks] of those
  std::uint32_t chunks;
  std::size_t partial_stride;  // floats from one chunk's partials to the next
  float* scratch;              // one thread's; floats: attention_scratch_floats
};
// Most rows that one attend_rows takes.
inline constexpr std::uint32_t kAttentionRows = 16;
[[maybe_unused]] static inline std::size_t attention_scratch_floats(std::size_t group,
                                                                    std::size_t head_dim) {
  const std::size_t queries = kAttentionRows * group;
  return 16 * kAttentionChunk + 2 * queries * (head_dim + 2) + queries * head_dim + 1024;
}

// Tables of equal numerics compute equal bits.
inline constexpr std::uint32_t kNumericsExact = 0;
inline constexpr std::uint32_t kNumericsAmxBf16 = 1;

struct KernelTable {
  const char* name;
  std::uint32_t numerics;
  std::size_t quant_row_tile;
  std::size_t float_row_tile;

  void (*quantise)(const QuantiseJob& job);
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
  void (*silu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  void (*gelu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  void (*add)(float* x, const float* y, std::size_t n);
  void (*to_half)(const float* x, std::size_t n, std::uint16_t* out);

  void (*attend_rows)(const AttentionJob& job);   // all chunks, finished rows
  void (*attend_chunk)(const AttentionJob& job);  // one chunk into partials
  void (*merge_chunks)(const AttentionJob& job);  // partials, ascending, into finished rows
};

// Null where this build has no such instruction set.
const KernelTable* scalar_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();
const KernelTable* amx_kernels();       // the process must have asked for tiles: permit_tiles
const KernelTable* amx_bf16_kernels();  // the same, and BF16 weights by TDPBF16PS

}  // namespace baton::kernels::cpu
