// BF16 weights times activations rounded to BF16, by VDPBF16PS: engine.float_path avx512_bf16.
// Other bits than float_matmul.h's and amx_bfloat.h's, so a numerics family of its own. Packed
// panels hold [K / 2][32 output features][2]. An output is one chain over pairs of K, ascending; a
// pair is what the instruction makes of it, by its definition fma of the odd elements, then of the
// even ones, denormals being zeros, in and out. A row's bits depend on nothing else.
//
// Only AVX512-BF16 translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/float_matmul.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kPairRows = 12;  // rows of a tile: so many times two sums fit the registers

// 16 rows of 16 words, transposed.
[[gnu::always_inline]] inline void transpose_words(__m512i* rows) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // rows i .. i+3, a column in each 128 bits
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // columns i, i+4, i+8, i+12 of rows 0-7 and 8-15
    const __m512i a = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xDD);
    const __m512i c = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xDD);
    t[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    t[i + 8] = _mm512_shuffle_i32x4(a, c, 0xDD);
    t[i + 12] = _mm512_shuffle_i32x4(b, d, 0xDD);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    rows[i] = t[i];
  }
}

// Up to 32 elements of a row as pairs.
template <class Isa, class Dot>
[[gnu::always_inline]] inline __m512i pairs_at(const float* x, std::size_t left) {
  if (left >= 2 * kLanes) {
    return Dot::round(Isa::load(x), Isa::load(x + kLanes));
  }
  return left > kLanes ? Dot::round(Isa::load(x), Isa::load_n(x + kLanes, left - kLanes))
                       : Dot::round(Isa::load_n(x, left), Isa::zero());
}

// Tiles as kernel_table.h says.
template <class Isa, class Dot>
void round_pairs(const QuantiseJob& job) {
  const std::size_t pairs = pairs_of(job.cols);
  for (std::size_t tile = job.first_tile; tile < job.end_tile; ++tile) {
    const std::size_t first = tile_first(job.tiles, tile);
    const std::size_t rows = tile_size(job.tiles, tile);
    const float* x = job.x + first * job.cols;
    auto* out = reinterpret_cast<float*>(job.out + first * pairs);
    for (std::size_t p = 0; p < pairs; p += kLanes) {
      const std::size_t count = pairs - p < kLanes ? pairs - p : kLanes;
      const std::size_t left = job.cols - 2 * p;
      if (rows == 1) {
        Isa::store_n(out + p, Isa::as_float(pairs_at<Isa, Dot>(x + 2 * p, left)), count);
        continue;
      }
      __m512i words[16];
      for (std::size_t r = 0; r < 16; ++r) {
        words[r] =
            r < rows ? pairs_at<Isa, Dot>(x + r * job.cols + 2 * p, left) : _mm512_setzero_si512();
      }
      transpose_words(words);
      for (std::size_t i = 0; i < count; ++i) {
        Isa::store_n(out + (p + i) * rows, Isa::as_float(words[i]), rows);
      }
    }
  }
}

template <class Isa, class Dot, int kRows, bool kPrefetch>
[[gnu::noinline]] void pair_tile(const std::uint8_t* panel,
                                 std::size_t pairs,
                                 const std::uint32_t* a,
                                 float* y,
                                 std::size_t y_stride,
                                 std::size_t columns,
                                 bool accumulate) {
  using F = typename Isa::F;
  F sums[kRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    sums[r][0] = Isa::zero();
    sums[r][1] = Isa::zero();
  }
  for (std::size_t p = 0; p < pairs; ++p) {
    if constexpr (kPrefetch) {
      Isa::prefetch(panel + 2048);
      Isa::prefetch(panel + 2048 + 64);
    }
    const typename Isa::W low = Isa::load_codes(panel);
    const typename Isa::W high = Isa::load_codes(panel + 64);
    panel += kPanelRows * sizeof(std::uint32_t);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const typename Isa::I pair = Isa::iset1(static_cast<std::int32_t>(a[r]));
      sums[r][0] = Dot::dot(sums[r][0], low, pair);
      sums[r][1] = Dot::dot(sums[r][1], high, pair);
    }
    a += kRows;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    store_columns<Isa>(y + r * y_stride, sums[r][0], columns, 0, accumulate);
    store_columns<Isa>(y + r * y_stride + kLanes, sums[r][1], columns, kLanes, accumulate);
  }
}

template <class Isa, class Dot, bool kPrefetch, int kRows = int{kPairRows}>
[[gnu::always_inline]] inline void dispatch_pair_tile(std::size_t rows,
                                                      const std::uint8_t* panel,
                                                      std::size_t pairs,
                                                      const std::uint32_t* a,
                                                      float* y,
                                                      std::size_t y_stride,
                                                      std::size_t columns,
                                                      bool accumulate) {
  if (rows == kRows) {
    pair_tile<Isa, Dot, kRows, kPrefetch>(panel, pairs, a, y, y_stride, columns, accumulate);
  } else if constexpr (kRows > 1) {
    dispatch_pair_tile<Isa, Dot, kPrefetch, kRows - 1>(
        rows, panel, pairs, a, y, y_stride, columns, accumulate);
  }
}

// A chunk of activations that stays in the second-level cache is taken through all panels.
template <class Isa, class Dot>
void pair_matmul(const MatmulJob& job) {
  constexpr std::size_t kCacheBytes = 384 << 10;
  const std::size_t pairs = pairs_of(job.cols);
  const std::size_t tile_bytes = pairs * kPairRows * sizeof(std::uint32_t);
  const std::size_t chunk = kCacheBytes / tile_bytes < 4 ? 4 : kCacheBytes / tile_bytes;
  for (std::size_t start = job.first_tile; start < job.end_tile; start += chunk) {
    const std::size_t end = start + chunk < job.end_tile ? start + chunk : job.end_tile;
    for (std::size_t panel = job.first_panel; panel < job.end_panel; ++panel) {
      const auto* bytes =
          reinterpret_cast<const std::uint8_t*>(job.weight) + panel * job.panel_bytes;
      const std::size_t column = panel * kPanelRows;
      for (std::size_t tile = start; tile < end; ++tile) {
        const std::size_t first = tile_first(job.tiles, tile);
        const std::size_t rows = tile_size(job.tiles, tile);
        const std::uint32_t* a = job.activations + first * pairs;
        float* y = job.y + first * job.y_stride + column;
        if (tile == start) {
          dispatch_pair_tile<Isa, Dot, true>(
              rows, bytes, pairs, a, y, job.y_stride, job.rows - column, job.accumulate);
        } else {
          dispatch_pair_tile<Isa, Dot, false>(
              rows, bytes, pairs, a, y, job.y_stride, job.rows - column, job.accumulate);
        }
      }
    }
  }
}

// What the two instructions give on some hundreds of operands, hashed: ordinary sums, ones that
// nearly cancel, denormals in and out, overflow, and floats between two BF16. Without NaNs, whose
// bits matter to nobody.
template <class Isa, class Dot>
std::uint32_t probe_pairs() {
  std::uint32_t state = 1;
  const auto next = [&state] {
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
  };
  // A float's bits with a random sign and fraction and an exponent of `count` from `first` on.
  const auto number = [&next](std::uint32_t first, std::uint32_t count) {
    const std::uint32_t bits = next();
    return (bits & 0x807FFFFF) | (first + next() % count) << 23;
  };
  struct Range {
    std::uint32_t factor, factors, sum, sums;
  };
  constexpr Range kRanges[] = {
      {120, 15, 120, 15}, {126, 2, 126, 3}, {50, 20, 0, 6}, {62, 4, 0, 3}, {180, 14, 245, 9}};
  std::uint32_t hash = 0x811C9DC5;
  for (int round = 0; round < 40; ++round) {
    const Range range = kRanges[round % 5];
    float numbers[5][kLanes];  // four factors, rounded to BF16 in pairs, and a sum
    for (int i = 0; i < 5; ++i) {
      for (float& lane : numbers[i]) {
        const std::uint32_t bits =
            i < 4 ? number(range.factor, range.factors) : number(range.sum, range.sums);
        __builtin_memcpy(&lane, &bits, sizeof(lane));
      }
    }
    const auto a = Dot::round(Isa::load(numbers[0]), Isa::load(numbers[1]));
    const auto b = Dot::round(Isa::load(numbers[2]), Isa::load(numbers[3]));
    const auto sum = Dot::dot(Isa::load(numbers[4]), a, b);
    std::uint32_t words[2][kLanes];
    Isa::store(reinterpret_cast<float*>(words[0]), Isa::as_float(a));
    Isa::store(reinterpret_cast<float*>(words[1]), sum);
    for (const auto& lanes : words) {
      for (const std::uint32_t word : lanes) {
        const bool nan = &lanes == &words[1] && (word & 0x7FFFFFFF) > 0x7F800000;
        hash = (hash ^ (nan ? 0 : word)) * 0x01000193;
        hash ^= hash >> 15;
      }
    }
  }
  return hash;
}

// `kBase`: the AVX-512 table.
template <class Isa, class Dot, const KernelTable* (*kBase)()>
struct PairTable {
  static void matmul(const MatmulJob& job) {
    job.dtype == DType::BF16 ? pair_matmul<Isa, Dot>(job) : kBase()->matmul(job);
  }
  static KernelTable make(const char* name) {
    KernelTable table = *kBase();
    table.name = name;
    table.numerics = kNumericsAvx512Bf16;
    table.pair_row_tile = kPairRows;
    table.probe = probe_pairs<Isa, Dot>;
    table.round_pairs = round_pairs<Isa, Dot>;
    table.matmul = matmul;
    return table;
  }
};

}  // namespace
}  // namespace baton::kernels::cpu
