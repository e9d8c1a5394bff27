// y = x · wᵀ for quantised weights, on 8-bit tensor cores. One kernel for every number of rows.
//
// A block has 64 output features (a tile of 16 a warp) and 64 rows of x, which pass through shared
// memory in steps of 128 of K, the next step on its way while one is multiplied. The product of a
// group of 32 (of 16 where scales are so fine) is a whole number, exact in any order; it joins by
// sum = fma(product, weight scale * row scale, sum), and then, for types with a min, by
// sum = fma(min, row scale * sum of codes, sum). That chain runs in ascending order inside a part
// of K of 1024, and parts are added in ascending order. So an output's bits depend on its row and
// weights alone: not on the number of rows, nor on which block computes which part, nor on the GPU.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul_layout.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kMatmulThreads = kBlockTiles * kWarp;
inline constexpr unsigned kStepGroups = 4;

// Rows of x in shared memory: 128 codes and 16 bytes that spread rows over the banks.
struct QuantStage {
  static constexpr unsigned kRowWords = kStepGroups * kGroup / 4 + 4;
  alignas(16) std::uint32_t codes[kBlockTokens][kRowWords];
  float scales[kBlockTokens][kStepGroups];
  float sums[kBlockTokens][kStepGroups];
};

// Posts the copy of a step's codes and brings its scales. Groups from `end` on are zeros.
template <bool kSums>
BATON_DEVICE void stage_step(QuantStage& stage,
                             const QuantMatmulArgs& args,
                             unsigned first_row,
                             unsigned first_group,
                             unsigned end) {
  constexpr unsigned kPieces = kStepGroups * kGroup / 16;  // of 16 bytes, in a row
  const unsigned groups = args.w.cols / kGroup;
  for (unsigned i = thread_index(); i < kBlockTokens * kPieces; i += kMatmulThreads) {
    const unsigned row = i / kPieces;
    const unsigned piece = i % kPieces;
    const bool wanted = first_row + row < args.out.m && first_group + piece / 2 < end;
    const std::size_t at =
        wanted ? std::size_t{first_row + row} * args.w.cols + first_group * kGroup + piece * 16 : 0;
    copy_async16(&stage.codes[row][piece * 4],
                 reinterpret_cast<const std::uint8_t*>(args.x.codes) + at,
                 wanted);
  }
  commit_copies();
  for (unsigned i = thread_index(); i < kBlockTokens * kStepGroups; i += kMatmulThreads) {
    const unsigned row = i / kStepGroups;
    const unsigned group = first_group + i % kStepGroups;
    const bool wanted = first_row + row < args.out.m && group < end;
    const std::size_t at = std::size_t{first_row + row} * groups + group;
    stage.scales[row][i % kStepGroups] = wanted ? args.x.scales[at] : 0.0F;
    if constexpr (kSums) {
      stage.sums[row][i % kStepGroups] = wanted ? args.x.sums[at] : 0.0F;
    }
  }
}

// Four unsigned nibbles, one a byte, less an offset of 0 to 127: four signed bytes.
template <std::int32_t kOffset>
BATON_DEVICE std::uint32_t signed_codes(std::uint32_t nibbles) {
  if constexpr (kOffset == 0) {
    return nibbles;
  } else {
    constexpr std::uint32_t kAll = static_cast<std::uint32_t>(kOffset) * 0x01010101U;
    return ((nibbles | 0x80808080U) - kAll) ^ 0x80808080U;
  }
}

// A lane's words of one group, brought by one load.
template <unsigned kCount>
struct alignas(kCount * 4) WordRun {
  std::uint32_t words[kCount];
};
template <class Format>
using CodeRun = WordRun<Format::kNibbles ? 2 : 4>;

// at: tile * groups + group.
template <class Format>
BATON_DEVICE CodeRun<Format> load_codes(const QuantMatrix& w, std::size_t at) {
  return reinterpret_cast<const CodeRun<Format>*>(w.codes)[at * kWarp + lane_index()];
}

template <class Format>
BATON_DEVICE void unpack_codes(const CodeRun<Format>& run, std::uint32_t (&a)[4]) {
  BATON_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (Format::kNibbles) {
      const std::uint32_t nibbles = run.words[i / 2] >> (4 * (i % 2)) & 0x0F0F0F0FU;
      a[i] = signed_codes<Format::kOffset>(nibbles);
    } else {
      a[i] = run.words[i];
    }
  }
}

// Scale `part` of feature `row` of a tile, and its min. at: tile * groups + group.
template <class Format>
BATON_DEVICE float weight_scale(
    const QuantMatrix& w, std::size_t at, std::size_t super, unsigned part, unsigned row) {
  if constexpr (Format::kScales == ScaleKind::Half) {
    return float_of_half(reinterpret_cast<const std::uint16_t*>(w.scales)[at * kTileRows + row]);
  } else if constexpr (Format::kScales == ScaleKind::K) {
    return float_of_half(w.supers[super * 2 * kTileRows + row]) *
           static_cast<float>(w.scales[at * kTileRows + row]);
  } else {
    const auto* const scales = reinterpret_cast<const std::int8_t*>(w.scales);
    return float_of_half(w.supers[super * kTileRows + row]) *
           static_cast<float>(scales[(at * 2 + part) * kTileRows + row]);
  }
}
template <class Format>
BATON_DEVICE float weight_min(const QuantMatrix& w,
                              std::size_t at,
                              std::size_t super,
                              unsigned row) {
  if constexpr (Format::kScales == ScaleKind::Half) {
    return float_of_half(reinterpret_cast<const std::uint16_t*>(w.mins)[at * kTileRows + row]);
  } else {
    return float_of_half(w.supers[(super * 2 + 1) * kTileRows + row]) *
           static_cast<float>(w.mins[at * kTileRows + row]);
  }
}

// One group of a warp's tile times all rows of the block.
template <class Format>
BATON_DEVICE void multiply_group(const QuantMatmulArgs& args,
                                 const QuantStage& stage,
                                 const CodeRun<Format>& codes,
                                 unsigned tile,
                                 unsigned group,
                                 unsigned slot,
                                 unsigned token_tiles,
                                 float (&sums)[kTokenTiles][4]) {
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  const unsigned groups = args.w.cols / kGroup;
  const std::size_t at = std::size_t{tile} * groups + group;
  const std::size_t super =
      std::size_t{tile} * (groups / kSuperGroups) + group / kSuperGroups;  // of K types
  constexpr unsigned kScales = Format::kScales == ScaleKind::K16 ? 2 : 1;
  std::uint32_t a[4];
  unpack_codes<Format>(codes, a);
  float scales[kScales][2];
  float mins[2] = {0.0F, 0.0F};
  BATON_UNROLL
  for (unsigned row = 0; row < 2; ++row) {
    BATON_UNROLL
    for (unsigned part = 0; part < kScales; ++part) {
      scales[part][row] = weight_scale<Format>(args.w, at, super, part, g + 8 * row);
    }
    if constexpr (Format::kHasMin) {
      mins[row] = weight_min<Format>(args.w, at, super, g + 8 * row);
    }
  }
  BATON_UNROLL
  for (unsigned tokens = 0; tokens < kTokenTiles; ++tokens) {
    if (tokens >= token_tiles) {
      continue;
    }
    const std::uint32_t* const row = &stage.codes[tokens * kTokenTile + g][slot * (kGroup / 4) + t];
    const std::uint32_t b[2] = {row[0], row[4]};
    const unsigned column = tokens * kTokenTile + 2 * t;
    const float rows[2] = {stage.scales[column][slot], stage.scales[column + 1][slot]};
    BATON_UNROLL
    for (unsigned part = 0; part < kScales; ++part) {
      std::int32_t dots[4] = {0, 0, 0, 0};
      if constexpr (kScales == 1) {
        mma_int8(dots, a, b);
      } else {
        // Half of the group: the other half's codes count as zeros.
        const std::uint32_t half[4] = {
            part == 0 ? a[0] : 0, part == 0 ? a[1] : 0, part == 1 ? a[2] : 0, part == 1 ? a[3] : 0};
        mma_int8(dots, half, b);
      }
      BATON_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        sums[tokens][i] =
            fma(static_cast<float>(dots[i]), scales[part][i / 2] * rows[i % 2], sums[tokens][i]);
      }
    }
    if constexpr (Format::kHasMin) {
      BATON_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        sums[tokens][i] = fma(mins[i / 2], stage.sums[column + i % 2][slot], sums[tokens][i]);
      }
    }
  }
}

// Joins a part's sums to those of the parts before it, and begins the next from zero.
BATON_DEVICE void add_part(float (&total)[kTokenTiles][4],
                           float (&sums)[kTokenTiles][4],
                           bool is_first) {
  BATON_UNROLL
  for (unsigned tokens = 0; tokens < kTokenTiles; ++tokens) {
    BATON_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      total[tokens][i] = is_first ? sums[tokens][i] : total[tokens][i] + sums[tokens][i];
      sums[tokens][i] = 0.0F;
    }
  }
}

// Writes a warp's sums of a tile: to y, or to one part's place.
BATON_DEVICE void store_tile(const MatmulTarget& out,
                             unsigned rows,
                             unsigned tile,
                             unsigned first_row,
                             unsigned part,
                             unsigned token_tiles,
                             const float (&sums)[kTokenTiles][4]) {
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  BATON_UNROLL
  for (unsigned tokens = 0; tokens < kTokenTiles; ++tokens) {
    BATON_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = first_row + tokens * kTokenTile + 2 * t + i % 2;
      const unsigned feature = tile * kTileRows + g + 8 * (i / 2);
      if (tokens >= token_tiles || row >= out.m || feature >= rows) {
        continue;
      }
      if (out.parts != nullptr) {
        out.parts[(std::size_t{part} * out.m + row) * rows + feature] = sums[tokens][i];
      } else {
        float* const y = out.y + row * out.stride + feature;
        *y = out.accumulate ? *y + sums[tokens][i] : sums[tokens][i];
      }
    }
  }
}

// Grid: x: features / 64, y: rows of x / 64, z: 1, or the parts of K when `out.parts` is set.
template <class Format>
[[maybe_unused]] static BATON_KERNEL(kMatmulThreads) quant_matmul(QuantMatmulArgs args) {
  struct Shared {
    QuantStage stages[2];
  };
  BATON_SHARED(Shared, shared);
  const unsigned tile = block_index() * kBlockTiles + warp_index();
  const bool has_tile = tile * kTileRows < args.w.rows;
  const unsigned first_row = block_index_y() * kBlockTokens;
  const unsigned rows =
      args.out.m - first_row < kBlockTokens ? args.out.m - first_row : kBlockTokens;
  const unsigned token_tiles = (rows + kTokenTile - 1) / kTokenTile;
  const unsigned groups = args.w.cols / kGroup;
  constexpr unsigned kPartGroups = kPartK / kGroup;
  const bool all_parts = args.out.parts == nullptr;
  const unsigned first_part = all_parts ? 0 : block_index_z();
  const unsigned first_group = first_part * kPartGroups;
  const unsigned part_end = (first_part + 1) * kPartGroups;
  const unsigned end = all_parts || part_end > groups ? groups : part_end;
  float total[kTokenTiles][4] = {};
  float sums[kTokenTiles][4] = {};
  stage_step<Format::kHasMin>(shared.stages[0], args, first_row, first_group, end);
  unsigned step = 0;
  for (unsigned group = first_group; group < end; group += kStepGroups, ++step) {
    // The step's weights are on their way while rows of x are waited for.
    CodeRun<Format> codes[kStepGroups] = {};
    BATON_UNROLL
    for (unsigned slot = 0; slot < kStepGroups; ++slot) {
      if (has_tile && group + slot < end) {
        codes[slot] =
            load_codes<Format>(args.w, std::size_t{tile} * (args.w.cols / kGroup) + group + slot);
      }
    }
    if (group + kStepGroups < end) {
      stage_step<Format::kHasMin>(
          shared.stages[(step + 1) % 2], args, first_row, group + kStepGroups, end);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    sync_threads();
    BATON_UNROLL
    for (unsigned slot = 0; slot < kStepGroups; ++slot) {
      if (has_tile && group + slot < end) {
        multiply_group<Format>(args,
                               shared.stages[step % 2],
                               codes[slot],
                               tile,
                               group + slot,
                               slot,
                               token_tiles,
                               sums);
      }
    }
    const unsigned done = group + kStepGroups;
    if (done % kPartGroups == 0 || done >= end) {
      add_part(total, sums, group / kPartGroups == first_part);
    }
    sync_threads();  // the stage is written again
  }
  if (has_tile) {
    store_tile(args.out, args.w.rows, tile, first_row, first_part, token_tiles, total);
  }
}

inline constexpr unsigned kJoinThreads = 256;

// Adds the parts of K in ascending order. Grid: x: m * features / 256.
[[maybe_unused]] static BATON_KERNEL(kJoinThreads) join_parts(JoinArgs args) {
  const std::size_t at = std::size_t{block_index()} * kJoinThreads + thread_index();
  const std::size_t size = std::size_t{args.out.m} * args.rows;
  if (at >= size) {
    return;
  }
  float total = args.out.parts[at];
  for (unsigned part = 1; part < args.parts; ++part) {
    total = total + args.out.parts[part * size + at];
  }
  float* const y = args.out.y + at / args.rows * args.out.stride + at % args.rows;
  *y = args.out.accumulate ? *y + total : total;
}

inline constexpr unsigned kReadThreads = 128;

// out[i] = scale * row ids[i] of the matrix, dequantised. A block a row.
template <class Format>
[[maybe_unused]] static BATON_KERNEL(kReadThreads) read_quant_rows(ReadRowsArgs args) {
  const auto id = static_cast<unsigned>(args.ids[block_index()]);
  const unsigned tile = id / kTileRows;
  const unsigned row = id % kTileRows;
  const unsigned groups = args.w.cols / kGroup;
  constexpr unsigned kWords = Format::kNibbles ? 2 : 4;
  for (unsigned k = thread_index(); k < args.w.cols; k += kReadThreads) {
    const unsigned group = k / kGroup;
    const unsigned at_k = k % kGroup;
    const std::size_t at = std::size_t{tile} * groups + group;
    // The register, lane and byte of (row, k) in a fragment.
    const unsigned fragment = row / 8 + 2 * (at_k / 16);
    const unsigned lane = row % 8 * 4 + at_k % 16 / 4;
    const unsigned byte = at_k % 4;
    const std::uint32_t* const words = args.w.codes + (at * kWarp + lane) * kWords;
    std::int32_t code = 0;
    if constexpr (Format::kNibbles) {
      code =
          static_cast<std::int32_t>(words[fragment / 2] >> (8 * byte + 4 * (fragment % 2)) & 0xFU) -
          Format::kOffset;
    } else {
      code = static_cast<std::int8_t>(words[fragment] >> (8 * byte) & 0xFFU);
    }
    const std::size_t super = std::size_t{tile} * (groups / kSuperGroups) + group / kSuperGroups;
    float value =
        weight_scale<Format>(args.w, at, super, at_k / 16, row) * static_cast<float>(code);
    if constexpr (Format::kHasMin) {
      value = value + weight_min<Format>(args.w, at, super, row);
    }
    args.out[std::size_t{block_index()} * args.w.cols + k] = value * args.scale;
  }
}

}  // namespace baton::kernels::cuda
