// Quantised weights times quantised activations by AMX tiles: the same bits as quant_matmul.h. A
// tile product gives the exact integers of 16 output features and up to 16 rows for one scale's
// elements (32, or 16 of Q6_K); they then join the rows' sums by the same chain of fma, in the same
// order.
//
// A panel is first taken apart into signed bytes (code - offset), in the order in which a tile
// takes them, so no start value is needed. kAmxRows rows and more come here, fewer go to the
// AVX-512 kernels: those took 0.6 of the time at 8 rows, 0.75 at 16, the same at 32, 1.35 times as
// long at 256. For many rows the activations' codes lie row by row: i32 codes[R][8]; the rest of a
// record (kernel_table.h) stays.
//
// Measured on Sapphire Rapids, for 16 x 16 outputs and a block of Q4_1: a product takes 16 cycles,
// its store 16 more of the tiles' unit; but while tile instructions run, float vectors have one
// port instead of two, so that the chain of fma (four instructions a row) takes 64 and the whole
// 75, where VNNI takes 96. Weights that stay in their tiles while activations pass, joining one
// product while the next runs, and codes as bfloat16, whose results need no conversion, all gained
// nothing.
//
// Only AMX translation units include this. Thread: pure, but for the thread's own tile registers,
// which are free again on return. Failure: none.
#pragma once

#include "kernels/cpu/quant_matmul.h"
#include "kernels/cpu/tile_config.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kTileRows = 16;
constexpr int kTilesAtOnce = 4;
constexpr std::size_t kTileInts = kTileRows * kLanes;

constexpr std::size_t kAmxRows = 33;
constexpr int kLeastTileRows = 11;  // so many rows and more make no smaller tiles of up to 16

// Bytes of signed codes, scales and mins of one block.
constexpr std::size_t kSignedCodes = kQuantBlock * kPanelRows;
constexpr std::size_t signed_record_bytes(int parts, bool has_min) {
  return kSignedCodes + static_cast<std::size_t>(parts + (has_min ? 1 : 0)) * kPanelRows * 4;
}

template <class Isa>
void amx_quantise(const QuantiseJob& job, void (*few_rows)(const QuantiseJob&)) {
  if (job.tiles.rows < kAmxRows) {
    few_rows(job);
    return;
  }
  for (std::size_t tile = job.first_tile; tile < job.end_tile; ++tile) {
    const std::size_t first = tile_first(job.tiles, tile);
    const std::size_t rows = tile_size(job.tiles, tile);
    std::uint32_t* out = job.out + first * (job.cols / kQuantBlock) * kActivationWords;
    for (std::size_t k = 0; k < job.cols; k += kQuantBlock) {
      for (std::size_t r = 0; r < rows; ++r) {
        std::uint32_t words[kActivationWords];
        quantise_row<Isa>(job.x + (first + r) * job.cols + k, kQuantBlock, 1, words);
        __builtin_memcpy(out + r * 8, words, kQuantBlock);
        for (std::size_t i = 8; i < kActivationWords; ++i) {
          out[i * rows + r] = words[i];
        }
      }
      out += kActivationWords * rows;
    }
  }
}

template <class Isa, class From, int kPair>
[[gnu::always_inline]] inline void expand_signed_pair(const std::uint8_t* record,
                                                      std::uint8_t* out) {
  constexpr int kOffset = From::kOffsetShift >= 0 ? 1 << From::kOffsetShift : 0;
  const auto offset = _mm512_set1_epi8(static_cast<char>(kOffset));
  for (int g = 0; g < 2; ++g) {
    typename Isa::W even;
    typename Isa::W odd;
    From::template codes<Isa, kPair>(record, g, even, odd);
    Isa::store_codes(out + ((2 * kPair) * 2 + g) * 64, _mm512_sub_epi8(even, offset));
    Isa::store_codes(out + ((2 * kPair + 1) * 2 + g) * 64, _mm512_sub_epi8(odd, offset));
  }
}

// A record: codes [8 steps][2 groups][64], scales f32[parts][32], mins f32[32].
template <class Isa, class From>
void expand_signed(const std::uint8_t* record, std::size_t blocks, std::uint8_t* out) {
  const std::uint8_t* header = record;
  for (std::size_t block = 0; block < blocks; ++block) {
    if (From::kLayout.header_bytes != 0 && block % From::kLayout.header_blocks == 0) {
      header = record;
      record += From::kLayout.header_bytes;
    }
    expand_signed_pair<Isa, From, 0>(record, out);
    expand_signed_pair<Isa, From, 1>(record, out);
    expand_signed_pair<Isa, From, 2>(record, out);
    expand_signed_pair<Isa, From, 3>(record, out);
    for (std::size_t at = 0; at < From::kLayout.record_bytes; at += 64) {
      Isa::prefetch(record + kPrefetchBytes + at);
    }
    auto* tables = reinterpret_cast<float*>(out + kSignedCodes);
    for (int g = 0; g < 2; ++g) {
      for (int part = 0; part < From::kParts; ++part) {
        Isa::store(tables + part * 32 + g * 16, From::template scale<Isa>(header, record, g, part));
      }
      if constexpr (From::kHasMin) {
        Isa::store(tables + From::kParts * 32 + g * 16, From::template min<Isa>(header, record, g));
      }
    }
    record += From::kLayout.record_bytes;
    out += signed_record_bytes(From::kParts, From::kHasMin);
  }
}

// One tile product into `dots`. Tile registers: results 0-3, activations 4-5, weights 6-7.
template <class Tile, int kSlot>
[[gnu::always_inline]] inline void tile_product(Tile& tile,
                                                const std::uint32_t* activations,
                                                const std::uint8_t* codes,
                                                std::int32_t* dots) {
  constexpr int kA = 4 + kSlot % 2;
  constexpr int kB = 6 + kSlot % 2;
  tile.template zero<kSlot>();
  tile.template load<kA>(activations, kQuantBlock);
  tile.template load<kB>(codes, 2 * 64);
  tile.template multiply_bytes<kSlot, kA, kB, true, true>();
  tile.template store<kSlot>(dots + kSlot * kTileInts, kLanes * sizeof(std::int32_t));
}

// kRows activations times the 16 output features of one group.
template <class Isa, class Tile, int kParts, bool kHasMin, int kRows>
[[gnu::noinline]] void amx_tile(Tile& tile,
                                const std::uint8_t* panel,
                                std::size_t blocks,
                                const std::uint32_t* a,
                                int group,
                                float* y,
                                std::size_t y_stride,
                                std::size_t columns,
                                bool accumulate,
                                std::int32_t* dots) {
  using F = typename Isa::F;
  constexpr std::size_t kRecord = signed_record_bytes(kParts, kHasMin);
  constexpr std::size_t kWords = kActivationWords * kRows;
  F sums[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    sums[r] = Isa::zero();
  }
  // A unit is what has one scale: a block or, with two parts, half of one.
  const auto product = [&]<int kSlot>(std::size_t unit) __attribute__((always_inline)) {
    const std::size_t part = kParts == 1 ? 0 : unit % 2;
    const std::size_t block = kParts == 1 ? unit : unit / 2;
    tile_product<Tile, kSlot>(tile,
                              a + block * kWords + part * 4,
                              panel + block * kRecord + part * 4 * 2 * 64 + group * 64,
                              dots);
  };
  const auto join = [&](std::size_t unit, int slot) __attribute__((always_inline)) {
    const std::size_t part = kParts == 1 ? 0 : unit % 2;
    const std::size_t block = kParts == 1 ? unit : unit / 2;
    const auto* tables = reinterpret_cast<const float*>(panel + block * kRecord + kSignedCodes);
    const auto* scales = reinterpret_cast<const float*>(a + block * kWords + 8 * kRows);
    const std::int32_t* ints = dots + slot * kTileInts;
    const F scale = Isa::load(tables + part * 32 + group * 16);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const auto dot = Isa::load_codes(reinterpret_cast<const std::uint8_t*>(ints + r * kLanes));
      const F both = Isa::mul(scale, Isa::set1(scales[r]));
      sums[r] = Isa::fma(Isa::to_float(dot), both, sums[r]);
    }
    if constexpr (kHasMin) {
      const F min = Isa::load(tables + kParts * 32 + group * 16);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sums[r] = Isa::fma(min, Isa::set1(scales[kRows + r]), sums[r]);
      }
    }
  };
  const std::size_t units = blocks * kParts;
  std::size_t unit = 0;
  for (; unit + kTilesAtOnce <= units; unit += kTilesAtOnce) {
    product.template operator()<0>(unit);
    product.template operator()<1>(unit + 1);
    product.template operator()<2>(unit + 2);
    product.template operator()<3>(unit + 3);
    for (int slot = 0; slot < kTilesAtOnce; ++slot) {
      join(unit + static_cast<std::size_t>(slot), slot);
    }
  }
  for (; unit < units; ++unit) {
    product.template operator()<0>(unit);
    join(unit, 0);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    store_columns<Isa>(y + r * y_stride, sums[r], columns, 0, accumulate);
  }
}

template <class Isa, class Tile, int kParts, bool kHasMin, int kRows = kTileRows, class... Args>
[[gnu::always_inline]] inline void dispatch_amx_tile(std::size_t rows, Tile& tile, Args... args) {
  if (rows == kRows) {
    amx_tile<Isa, Tile, kParts, kHasMin, kRows>(tile, args...);
  } else if constexpr (kRows > kLeastTileRows) {
    dispatch_amx_tile<Isa, Tile, kParts, kHasMin, kRows - 1>(rows, tile, args...);
  }
}

inline TileConfig byte_tiles(std::size_t rows, int parts) {
  const int elements = static_cast<int>(kQuantBlock) / parts;
  TileConfig config;
  for (int slot = 0; slot < kTilesAtOnce; ++slot) {
    set_tile(config, slot, static_cast<int>(rows), 64);
  }
  for (int i = 0; i < 2; ++i) {
    set_tile(config, 4 + i, static_cast<int>(rows), elements);
    set_tile(config, 6 + i, elements / 4, 64);
  }
  return config;
}

// Tiles [first_tile, end_tile), all of one size, against one expanded panel.
template <class Isa, class Tile, class From>
void amx_panel(Tile& registers,
               const MatmulJob& job,
               std::size_t panel,
               std::size_t first_tile,
               std::size_t end_tile,
               const std::uint8_t* bytes,
               std::int32_t* dots) {
  const std::size_t blocks = job.cols / kQuantBlock;
  for (int group = 0; group < 2; ++group) {
    const std::size_t column = panel * kPanelRows + static_cast<std::size_t>(group) * kLanes;
    if (column >= job.rows) {
      break;
    }
    for (std::size_t tile = first_tile; tile < end_tile; ++tile) {
      const std::size_t first = tile_first(job.tiles, tile);
      dispatch_amx_tile<Isa, Tile, From::kParts, From::kHasMin>(
          tile_size(job.tiles, tile),
          registers,
          bytes,
          blocks,
          job.activations + first * blocks * kActivationWords,
          group,
          job.y + first * job.y_stride + column,
          job.y_stride,
          job.rows - column,
          job.accumulate,
          dots);
    }
  }
}

// Activations that are walked once a panel should stay in the second-level cache.
constexpr std::size_t kAmxActivationBytes = 384 << 10;

template <class Isa, class Tile, DType kType>
void amx_quant_matmul(const MatmulJob& job) {
  using Codec = FileCodec<kType>;
  const std::size_t blocks = job.cols / kQuantBlock;
  const std::size_t tile_bytes = blocks * kActivationWords * sizeof(std::uint32_t) * kTileRows;
  const std::size_t fitting = kAmxActivationBytes / tile_bytes;
  const std::size_t chunk = fitting < 4 ? 4 : fitting;
  const auto* weight = reinterpret_cast<const std::uint8_t*>(job.weight);
  auto* dots = reinterpret_cast<std::int32_t*>(job.scratch);
  auto* expanded =
      reinterpret_cast<std::uint8_t*>(job.scratch) + kTilesAtOnce * kTileInts * sizeof(*dots);
  // Tiles are of two sizes, the longer ones first.
  const std::size_t longer = job.tiles.rows % job.tiles.count;
  std::size_t configured = tile_size(job.tiles, job.first_tile);
  Tile registers(byte_tiles(configured, Codec::kParts));
  for (std::size_t tile = job.first_tile; tile < job.end_tile; tile += chunk) {
    const std::size_t end = tile + chunk < job.end_tile ? tile + chunk : job.end_tile;
    const std::size_t middle = longer < tile ? tile : longer < end ? longer : end;
    for (std::size_t panel = job.first_panel; panel < job.end_panel; ++panel) {
      expand_signed<Isa, Codec>(weight + panel * job.panel_bytes, blocks, expanded);
      for (int size = 0; size < 2; ++size) {
        const std::size_t first = size == 0 ? tile : middle;
        const std::size_t last = size == 0 ? middle : end;
        if (first == last) {
          continue;
        }
        if (const std::size_t rows = tile_size(job.tiles, first); rows != configured) {
          registers.configure(byte_tiles(rows, Codec::kParts));
          configured = rows;
        }
        amx_panel<Isa, Tile, Codec>(registers, job, panel, first, last, expanded, dots);
      }
    }
  }
}

// `other`: the AVX-512 kernels, for float weights and few rows.
template <class Isa, class Tile>
void amx_matmul(const MatmulJob& job, void (*other)(const MatmulJob&)) {
  if (job.tiles.rows < kAmxRows) {
    other(job);
    return;
  }
  switch (job.dtype) {
    case DType::Q4_0:
      return amx_quant_matmul<Isa, Tile, DType::Q4_0>(job);
    case DType::Q4_1:
      return amx_quant_matmul<Isa, Tile, DType::Q4_1>(job);
    case DType::Q5_0:
      return amx_quant_matmul<Isa, Tile, DType::Q5_0>(job);
    case DType::Q5_1:
      return amx_quant_matmul<Isa, Tile, DType::Q5_1>(job);
    case DType::Q8_0:
      return amx_quant_matmul<Isa, Tile, DType::Q8_0>(job);
    case DType::Q4_K:
      return amx_quant_matmul<Isa, Tile, DType::Q4_K>(job);
    case DType::Q5_K:
      return amx_quant_matmul<Isa, Tile, DType::Q5_K>(job);
    case DType::Q6_K:
      return amx_quant_matmul<Isa, Tile, DType::Q6_K>(job);
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      return other(job);
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
