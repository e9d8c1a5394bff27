// y = x · wᵀ for weights of 16-bit floats and FP8, on 16-bit tensor cores with float32 sums, and
// for float32 weights on plain arithmetic. One kernel for every number of rows.
//
// The shape is quant_matmul.h's: 64 features and 64 rows a block, K in parts of 1024. A row of x is
// the sum of two 16-bit floats, so that 16 (BF16) or 22 (F16) bits of it count; a step of K of 16
// adds the product with the high parts, then the one with the low parts. How the hardware adds
// inside a step is the instruction's own: the same on one kind of GPU whatever the batch, another
// on another kind. FP8 E4M3 weights are widened to BF16, which holds them exactly.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul_layout.h"
#include "kernels/cuda/quant_matmul.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kFloatStepK = 64;  // of K in shared memory at a time

// Rows of x in shared memory: 64 numbers and 16 bytes that spread rows over the banks.
struct FloatStage {
  static constexpr unsigned kRowWords = kFloatStepK / 2 + 4;
  alignas(16) std::uint32_t high[kBlockTokens][kRowWords];
  alignas(16) std::uint32_t low[kBlockTokens][kRowWords];
};

BATON_DEVICE void stage_floats(FloatStage& stage,
                               const FloatMatmulArgs& args,
                               unsigned first_row,
                               unsigned first_k) {
  constexpr unsigned kPieces = kFloatStepK / 8;  // of 16 bytes, in a row
  for (unsigned i = thread_index(); i < kBlockTokens * kPieces; i += kMatmulThreads) {
    const unsigned row = i / kPieces;
    const unsigned piece = i % kPieces;
    const bool wanted = first_row + row < args.out.m;
    const std::size_t at =
        wanted ? std::size_t{first_row + row} * args.padded + first_k + piece * 8 : 0;
    copy_async16(&stage.high[row][piece * 4], args.x.high + at, wanted);
    copy_async16(&stage.low[row][piece * 4], args.x.low + at, wanted);
  }
  commit_copies();
}

// Two FP8 E4M3 codes in the low half as two BF16, exactly: a code is sign, four bits of exponent
// with bias 7, three of mantissa; 0x7F is NaN.
BATON_DEVICE std::uint32_t bfloats_of_e4m3(std::uint32_t codes) {
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint32_t code = codes >> (8 * i) & 0xFFU;
    const std::uint32_t magnitude = code & 0x7FU;
    // Shifted into place the number is 2^120 too small; below 2^-6 it is a multiple of 2^-9.
    const float value = magnitude == 0x7FU ? float_of(0x7FC00000U)
                        : magnitude < 8    ? static_cast<float>(magnitude) * 0x1p-9F
                                           : float_of((magnitude << 20) + (120U << 23));
    out |= (bits_of(value) >> 16 | (code & 0x80U) << 8) << (16 * i);
  }
  return out;
}

template <FloatFormat kFormat>
BATON_DEVICE void load_floats(const FloatMatrix& w, std::size_t at, std::uint32_t (&a)[4]) {
  constexpr unsigned kWords = kFormat == FloatFormat::E4m3 ? 2 : 4;
  const auto run = reinterpret_cast<const WordRun<kWords>*>(w.words)[at * kWarp + lane_index()];
  BATON_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (kFormat == FloatFormat::E4m3) {
      a[i] = bfloats_of_e4m3(run.words[i / 2] >> (16 * (i % 2)));
    } else {
      a[i] = run.words[i];
    }
  }
}

// 16 of K of a warp's tile times all rows of the block.
template <FloatFormat kFormat>
BATON_DEVICE void multiply_step(const FloatMatmulArgs& args,
                                const FloatStage& stage,
                                std::size_t at,
                                unsigned slot,
                                unsigned token_tiles,
                                float (&sums)[kTokenTiles][4]) {
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  std::uint32_t a[4];
  load_floats<kFormat>(args.w, at, a);
  BATON_UNROLL
  for (unsigned tokens = 0; tokens < kTokenTiles; ++tokens) {
    if (tokens >= token_tiles) {
      continue;
    }
    const unsigned row = tokens * kTokenTile + g;
    const unsigned word = slot * (kStepK / 2) + t;
    const std::uint32_t high[2] = {stage.high[row][word], stage.high[row][word + 4]};
    const std::uint32_t low[2] = {stage.low[row][word], stage.low[row][word + 4]};
    if constexpr (kFormat == FloatFormat::Half) {
      mma_half(sums[tokens], a, high);
      mma_half(sums[tokens], a, low);
    } else {
      mma_bfloat(sums[tokens], a, high);
      mma_bfloat(sums[tokens], a, low);
    }
  }
}

// Scales of rows, which are powers of two, and of features.
BATON_DEVICE void scale_sums(const FloatMatmulArgs& args,
                             unsigned tile,
                             unsigned first_row,
                             unsigned token_tiles,
                             float (&sums)[kTokenTiles][4]) {
  const unsigned feature = tile * kTileRows + lane_index() / 4;
  float features[2] = {1.0F, 1.0F};
  for (unsigned i = 0; i < 2; ++i) {
    if (args.w.scales != nullptr && feature + 8 * i < args.w.rows) {
      features[i] = args.w.scales[feature + 8 * i];
    }
  }
  BATON_UNROLL
  for (unsigned tokens = 0; tokens < kTokenTiles; ++tokens) {
    BATON_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = first_row + tokens * kTokenTile + 2 * (lane_index() % 4) + i % 2;
      if (tokens < token_tiles && row < args.out.m) {
        sums[tokens][i] = sums[tokens][i] * args.x.scales[row] * features[i / 2];
      }
    }
  }
}

// Grid: as quant_matmul.
template <FloatFormat kFormat>
[[maybe_unused]] static BATON_KERNEL(kMatmulThreads) float_matmul(FloatMatmulArgs args) {
  BATON_SHARED(FloatStage, stage);
  const unsigned tile = block_index() * kBlockTiles + warp_index();
  const bool has_tile = tile * kTileRows < args.w.rows;
  const unsigned first_row = block_index_y() * kBlockTokens;
  const unsigned rows =
      args.out.m - first_row < kBlockTokens ? args.out.m - first_row : kBlockTokens;
  const unsigned token_tiles = (rows + kTokenTile - 1) / kTokenTile;
  const bool all_parts = args.out.parts == nullptr;
  const unsigned first_part = all_parts ? 0 : block_index_z();
  const unsigned part_end = (first_part + 1) * kPartK;
  const unsigned end = all_parts || part_end > args.padded ? args.padded : part_end;
  float total[kTokenTiles][4] = {};
  float sums[kTokenTiles][4] = {};
  for (unsigned k = first_part * kPartK; k < end; k += kFloatStepK) {
    stage_floats(stage, args, first_row, k);
    wait_copies<0>();
    sync_threads();
    if (has_tile) {
      for (unsigned slot = 0; slot < kFloatStepK / kStepK; ++slot) {
        const std::size_t at = std::size_t{tile} * (args.padded / kStepK) + k / kStepK + slot;
        multiply_step<kFormat>(args, stage, at, slot, token_tiles, sums);
      }
    }
    const unsigned done = k + kFloatStepK;
    if (done % kPartK == 0 || done >= end) {
      scale_sums(args, tile, first_row, token_tiles, sums);
      add_part(total, sums, k / kPartK == first_part);
    }
    sync_threads();  // the stage is written again
  }
  if (has_tile) {
    store_tile(args.out, args.w.rows, tile, first_row, first_part, token_tiles, total);
  }
}

inline constexpr unsigned kPlainThreads = 256;
inline constexpr unsigned kPlainRows = 16;  // of x, a block

// Float32 weights, few and small (a router, a test): a warp an output feature, rows of x in turn;
// lanes take K in steps of 32, their sums join by one tree. Grid: x: features / 8, y: rows of x
// / 16.
[[maybe_unused]] static BATON_KERNEL(kPlainThreads) plain_matmul(PlainMatmulArgs args) {
  const unsigned feature = block_index() * (kPlainThreads / kWarp) + warp_index();
  if (feature >= args.rows) {
    return;
  }
  const float* const w = args.w + std::size_t{feature} * args.cols;
  const unsigned first = block_index_y() * kPlainRows;
  for (unsigned row = first; row < first + kPlainRows && row < args.out.m; ++row) {
    const float* const x = args.x + std::size_t{row} * args.cols;
    float sum = 0.0F;
    for (unsigned k = lane_index(); k < args.cols; k += kWarp) {
      sum = fma(x[k], w[k], sum);
    }
    sum = warp_sum(sum);
    if (lane_index() == 0) {
      float* const y = args.out.y + row * args.out.stride + feature;
      *y = args.out.accumulate ? *y + sum : sum;
    }
  }
}

// As read_quant_rows, of a table of floats.
template <FloatFormat kFormat>
[[maybe_unused]] static BATON_KERNEL(kReadThreads) read_float_rows(ReadRowsArgs args) {
  const auto id = static_cast<unsigned>(args.ids[block_index()]);
  const unsigned tile = id / kTileRows;
  const unsigned row = id % kTileRows;
  const unsigned steps =
      (args.floats.cols + kFloatStepK - 1) / kFloatStepK * (kFloatStepK / kStepK);
  for (unsigned k = thread_index(); k < args.floats.cols; k += kReadThreads) {
    const unsigned at_k = k % kStepK;
    const unsigned fragment = row / 8 + 2 * (at_k / 8);
    const unsigned lane = row % 8 * 4 + at_k % 8 / 2;
    const std::size_t at = std::size_t{tile} * steps + k / kStepK;
    const auto bits = static_cast<std::uint16_t>(
        args.floats.words[(at * kWarp + lane) * 4 + fragment] >> (16 * (at_k % 2)) & 0xFFFFU);
    const float value = kFormat == FloatFormat::Half ? float_of_half(bits) : float_of_bfloat(bits);
    args.out[std::size_t{block_index()} * args.floats.cols + k] = value * args.scale;
  }
}

[[maybe_unused]] static BATON_KERNEL(kReadThreads) read_plain_rows(ReadPlainRowsArgs args) {
  const auto id = static_cast<std::size_t>(args.ids[block_index()]);
  for (unsigned k = thread_index(); k < args.cols; k += kReadThreads) {
    args.out[std::size_t{block_index()} * args.cols + k] = args.w[id * args.cols + k] * args.scale;
  }
}

}  // namespace baton::kernels::cuda
