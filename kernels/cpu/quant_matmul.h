// Quantised weights times quantised activations, for any instruction set.
//
// An output is one chain: for each 32-element block of K, ascending, the exact integer dot product
// of codes becomes float and joins by fma(dot, weight scale * activation scale, sum), then, for
// types with a min, fma(min, activation scale * sum of codes, sum). The tile sizes, the expansion
// and the order of panels change nothing of that.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/weight_codecs.h"

namespace baton::kernels::cpu {
namespace {

template <class Isa>
void quantise_row(const float* x, std::size_t cols, std::size_t tile_rows, std::uint32_t* out) {
  constexpr std::uint32_t kTiny = 0x0DA24260;  // 1e-30f: below it a block is all zeros
  constexpr std::uint32_t kInfinite = 0x7F800000;
  for (std::size_t k = 0; k < cols; k += kQuantBlock) {
    const std::uint32_t bits = Isa::largest_magnitude(x + k);
    const float largest = __builtin_bit_cast(float, bits);
    float factor = 0.0F;
    float scale = 0.0F;
    if (bits >= kInfinite) {
      scale = __builtin_nanf("");
    } else if (bits > kTiny) {
      factor = 127.0F / largest;
      scale = largest / 127.0F;
    }
    alignas(32) std::int8_t codes[32];
    Isa::quantise32(x + k, factor, codes);
    const std::int32_t low = Isa::sum16(codes);
    const std::int32_t high = Isa::sum16(codes + 16);
    std::uint32_t words[kActivationWords];
    __builtin_memcpy(words, codes, sizeof(codes));
    words[8] = __builtin_bit_cast(std::uint32_t, scale);
    words[9] = __builtin_bit_cast(std::uint32_t, scale * static_cast<float>(low + high));
    words[10] = static_cast<std::uint32_t>(-(low + high));
    words[11] = static_cast<std::uint32_t>(-low);
    words[12] = static_cast<std::uint32_t>(-high);
    for (std::size_t i = 0; i < kActivationWords; ++i) {
      out[i * tile_rows] = words[i];
    }
    out += kActivationWords * tile_rows;
  }
}

template <class Isa>
void quantise(const QuantiseJob& job) {
  for (std::size_t tile = job.first_tile; tile < job.end_tile; ++tile) {
    const std::size_t first = tile_first(job.tiles, tile);
    const std::size_t rows = tile_size(job.tiles, tile);
    std::uint32_t* out = job.out + first * (job.cols / kQuantBlock) * kActivationWords;
    for (std::size_t r = 0; r < rows; ++r) {
      quantise_row<Isa>(job.x + (first + r) * job.cols, job.cols, rows, out + r);
    }
  }
}

// Reads ahead of the stream of weights: hardware stops at page ends, and a panel is short.
constexpr std::size_t kPrefetchBytes = 4096;

template <class Isa, class Codec, int kRows, int kPair, bool kPrefetch>
[[gnu::always_inline]] inline void pair_step(const std::uint8_t* record,
                                             const std::uint32_t* a,
                                             int first_group,
                                             typename Isa::I (&dots)[kRows][Isa::kGroups]) {
  typename Isa::W even[Isa::kGroups];
  typename Isa::W odd[Isa::kGroups];
#pragma GCC unroll 2
  for (int g = 0; g < Isa::kGroups; ++g) {
    Codec::template codes<Isa, kPair>(record, first_group + g, even[g], odd[g]);
  }
  if constexpr (kPrefetch) {
    constexpr std::size_t kQuarter = (Codec::kLayout.record_bytes + 255) / 256 * 64;
    for (std::size_t at = 0; at < kQuarter; at += 64) {
      Isa::prefetch(record + kPrefetchBytes + kPair * kQuarter + at);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int g = 0; g < Isa::kGroups; ++g) {
      dots[r][g] =
          Isa::template dot4<Codec::kWide>(dots[r][g], even[g], a[(2 * kPair) * kRows + r]);
    }
#pragma GCC unroll 2
    for (int g = 0; g < Isa::kGroups; ++g) {
      dots[r][g] =
          Isa::template dot4<Codec::kWide>(dots[r][g], odd[g], a[(2 * kPair + 1) * kRows + r]);
    }
  }
}

template <class Isa, class Codec, int kRows>
[[gnu::always_inline]] inline void start_dots(const std::uint32_t* minus_sums,
                                              typename Isa::I (&dots)[kRows][Isa::kGroups]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    typename Isa::I start = Isa::iset1(0);
    if constexpr (Codec::kOffsetShift >= 0 && !(Codec::kWide && Isa::kSignedBytes)) {
      start = Isa::template shift_left<Codec::kOffsetShift>(
          Isa::iset1(static_cast<std::int32_t>(minus_sums[r])));
    }
#pragma GCC unroll 2
    for (int g = 0; g < Isa::kGroups; ++g) {
      dots[r][g] = start;
    }
  }
}

// One tile: kRows activations times Isa::kGroups * 16 output features.
template <class Isa, class Codec, int kRows, bool kPrefetch>
[[gnu::noinline]] void quant_tile(const std::uint8_t* panel,
                                  std::size_t blocks,
                                  const std::uint32_t* a,
                                  int first_group,
                                  float* y,
                                  std::size_t y_stride,
                                  std::size_t columns,
                                  bool accumulate) {
  using F = typename Isa::F;
  using I = typename Isa::I;
  constexpr PanelLayout kLayout = Codec::kLayout;
  constexpr int kGroups = Isa::kGroups;
  F sums[kRows][kGroups];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      sums[r][g] = Isa::zero();
    }
  }
  const std::uint8_t* header = panel;
  const std::uint8_t* record = panel;
  std::size_t behind_header = 0;
  for (std::size_t block = 0; block < blocks; ++block) {
    if constexpr (kLayout.header_bytes != 0) {
      if (behind_header == 0) {
        header = record;
        record += kLayout.header_bytes;
        behind_header = kLayout.header_blocks;
      }
      --behind_header;
    }
#pragma GCC unroll 2
    for (int part = 0; part < Codec::kParts; ++part) {
      I dots[kRows][kGroups];
      start_dots<Isa, Codec, kRows>(a + (Codec::kParts == 1 ? 10 : 11 + part) * kRows, dots);
      if (Codec::kParts == 1 || part == 0) {
        pair_step<Isa, Codec, kRows, 0, kPrefetch>(record, a, first_group, dots);
        pair_step<Isa, Codec, kRows, 1, kPrefetch>(record, a, first_group, dots);
      }
      if (Codec::kParts == 1 || part == 1) {
        pair_step<Isa, Codec, kRows, 2, kPrefetch>(record, a, first_group, dots);
        pair_step<Isa, Codec, kRows, 3, kPrefetch>(record, a, first_group, dots);
      }
      const auto* activation_scales = reinterpret_cast<const float*>(a + 8 * kRows);
      const auto* scaled_sums = reinterpret_cast<const float*>(a + 9 * kRows);
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        const F scale = Codec::template scale<Isa>(header, record, first_group + g, part);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const F both = Isa::mul(scale, Isa::set1(activation_scales[r]));
          sums[r][g] = Isa::fma(Isa::to_float(dots[r][g]), both, sums[r][g]);
        }
        if constexpr (Codec::kHasMin) {
          const F min = Codec::template min<Isa>(header, record, first_group + g);
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            sums[r][g] = Isa::fma(min, Isa::set1(scaled_sums[r]), sums[r][g]);
          }
        }
      }
    }
    record += kLayout.record_bytes;
    a += kActivationWords * kRows;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      store_columns<Isa>(y + r * y_stride + g * 16, sums[r][g], columns, g * 16, accumulate);
    }
  }
}

template <class Isa, class Codec, bool kPrefetch, int kRows = Isa::kQuantRows>
[[gnu::always_inline]] inline void dispatch_quant_tile(std::size_t rows,
                                                       const std::uint8_t* panel,
                                                       std::size_t blocks,
                                                       const std::uint32_t* a,
                                                       int group,
                                                       float* y,
                                                       std::size_t y_stride,
                                                       std::size_t columns,
                                                       bool accumulate) {
  if (rows == kRows) {
    quant_tile<Isa, Codec, kRows, kPrefetch>(
        panel, blocks, a, group, y, y_stride, columns, accumulate);
  } else if constexpr (kRows > 1) {
    dispatch_quant_tile<Isa, Codec, kPrefetch, kRows - 1>(
        rows, panel, blocks, a, group, y, y_stride, columns, accumulate);
  }
}

// All tiles of [first_tile, end_tile) against one panel.
template <class Isa, class Codec>
void quant_panel(const MatmulJob& job,
                 std::size_t panel,
                 const std::uint8_t* bytes,
                 std::size_t first_tile,
                 std::size_t end_tile,
                 bool prefetch) {
  const std::size_t blocks = job.cols / kQuantBlock;
  for (std::size_t tile = first_tile; tile < end_tile; ++tile) {
    const std::size_t first = tile_first(job.tiles, tile);
    const std::size_t rows = tile_size(job.tiles, tile);
    const std::uint32_t* a = job.activations + first * blocks * kActivationWords;
    for (int group = 0; group < 2; group += Isa::kGroups) {
      const std::size_t column = panel * kPanelRows + static_cast<std::size_t>(group) * kLanes;
      if (column >= job.rows) {
        break;
      }
      float* y = job.y + first * job.y_stride + column;
      if (prefetch && tile == first_tile && group == 0) {
        dispatch_quant_tile<Isa, Codec, true>(
            rows, bytes, blocks, a, group, y, job.y_stride, job.rows - column, job.accumulate);
      } else {
        dispatch_quant_tile<Isa, Codec, false>(
            rows, bytes, blocks, a, group, y, job.y_stride, job.rows - column, job.accumulate);
      }
    }
  }
}

template <class Isa, class From, int kPair>
[[gnu::always_inline]] inline void expand_pair(const std::uint8_t* record, std::uint8_t* out) {
  for (int g = 0; g < 2; ++g) {
    typename Isa::W even;
    typename Isa::W odd;
    From::template codes<Isa, kPair>(record, g, even, odd);
    Isa::store_codes(out + ((2 * kPair) * 2 + g) * 64, even);
    Isa::store_codes(out + ((2 * kPair + 1) * 2 + g) * 64, odd);
  }
}

template <class Isa, class From>
void expand_panel(const std::uint8_t* record, std::size_t blocks, std::uint8_t* out) {
  using To = ExpandedCodec<From>;
  const std::uint8_t* header = record;
  for (std::size_t block = 0; block < blocks; ++block) {
    if (From::kLayout.header_bytes != 0 && block % From::kLayout.header_blocks == 0) {
      header = record;
      record += From::kLayout.header_bytes;
    }
    expand_pair<Isa, From, 0>(record, out);
    expand_pair<Isa, From, 1>(record, out);
    expand_pair<Isa, From, 2>(record, out);
    expand_pair<Isa, From, 3>(record, out);
    for (std::size_t at = 0; at < From::kLayout.record_bytes; at += 64) {
      Isa::prefetch(record + kPrefetchBytes + at);
    }
    auto* scales = reinterpret_cast<float*>(out + To::kLayout.scale_at);
    for (int part = 0; part < From::kParts; ++part) {
      for (int g = 0; g < 2; ++g) {
        Isa::store(scales + part * 32 + g * 16, From::template scale<Isa>(header, record, g, part));
      }
    }
    if constexpr (From::kHasMin) {
      auto* mins = reinterpret_cast<float*>(out + To::kLayout.min_at);
      for (int g = 0; g < 2; ++g) {
        Isa::store(mins + g * 16, From::template min<Isa>(header, record, g));
      }
    }
    record += From::kLayout.record_bytes;
    out += To::kLayout.record_bytes;
  }
}

// Activations that are walked once a panel should stay in the second-level cache.
constexpr std::size_t kActivationBytes = 384 << 10;

// Tiles from which taking a panel's codes apart once pays. Nibbles cost nothing beside the dot
// products; the other types' bits do.
constexpr std::size_t expand_from(DType type) {
  switch (type) {
    case DType::Q6_K:
      return 4;
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
      return 10;
    default:
      return 0;  // never
  }
}

template <class Isa, DType kType>
void quant_matmul(const MatmulJob& job) {
  using Codec = FileCodec<kType>;
  constexpr std::size_t kExpandFrom = expand_from(kType);
  const std::size_t row_bytes = job.cols / kQuantBlock * kActivationWords * sizeof(std::uint32_t);
  const std::size_t tile_bytes = row_bytes * static_cast<std::size_t>(Isa::kQuantRows);
  const std::size_t chunk = kActivationBytes / tile_bytes < 8 ? 8 : kActivationBytes / tile_bytes;
  const auto* weight = reinterpret_cast<const std::uint8_t*>(job.weight);
  // The stream's own prefetches begin kPrefetchBytes in.
  for (std::size_t at = 0; at < kPrefetchBytes; at += 64) {
    Isa::prefetch(weight + job.first_panel * job.panel_bytes + at);
  }
  for (std::size_t tile = job.first_tile; tile < job.end_tile; tile += chunk) {
    const std::size_t end = tile + chunk < job.end_tile ? tile + chunk : job.end_tile;
    for (std::size_t panel = job.first_panel; panel < job.end_panel; ++panel) {
      const std::uint8_t* bytes = weight + panel * job.panel_bytes;
      if constexpr (kExpandFrom != 0) {
        if (end - tile >= kExpandFrom) {
          auto* scratch = reinterpret_cast<std::uint8_t*>(job.scratch);
          expand_panel<Isa, Codec>(bytes, job.cols / kQuantBlock, scratch);
          quant_panel<Isa, ExpandedCodec<Codec>>(job, panel, scratch, tile, end, false);
          continue;
        }
      }
      quant_panel<Isa, Codec>(job, panel, bytes, tile, end, true);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
