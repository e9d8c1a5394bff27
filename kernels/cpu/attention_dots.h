// Dot products of 16-bit codes, rows of queries or weights times staged keys or values, in tiles
// that keep their sums in registers. Integers: exact in any order.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/kv_stage.h"

namespace baton::kernels::cpu {
namespace {

// out[i][v * 16 + lane] = row_scales[i] * sum over pairs of a_i[pair] . b[v][pair][lane], for
// kQueries rows and kVectors vectors. A row's pairs lie kQueries apart (rows side by side) or next
// to each other, kChunkPairs from row to row.
enum class Rows : std::uint8_t { SideBySide, Apart };
// A sum over pairs may be taken in parts: until the last one `out` holds the integers themselves.
struct Part {
  bool first = true;
  bool last = true;
};
// Codes are stored one by one and read in pairs.
[[gnu::always_inline]] inline std::int32_t load_pair(const std::int32_t* p) {
  std::int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return pair;
}
template <class Isa, Rows kRows, int kQueries, int kVectors>
[[gnu::noinline]] void dot_tile(const std::int32_t* a,
                                const std::int32_t* b,
                                std::size_t b_stride,
                                std::size_t pairs,
                                const float* row_scales,
                                float* out,
                                std::size_t out_stride,
                                Part part) {
  using I = typename Isa::I;
  constexpr std::size_t kPairStep = kRows == Rows::SideBySide ? kQueries : 1;
  constexpr std::size_t kRowStep = kRows == Rows::SideBySide ? 1 : kChunkPairs;
  I sums[kQueries][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] =
          part.first
              ? Isa::iset1(0)
              : Isa::bits(Isa::load(out + static_cast<std::size_t>(i) * out_stride + v * kLanes));
    }
  }
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    I x[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      x[v] = Isa::iload(b + v * b_stride);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] =
            Isa::dot2(sums[i][v], x[v], load_pair(a + static_cast<std::size_t>(i) * kRowStep));
      }
      // Keeps the compiler from fetching all rows' codes first: sums would lose their registers.
      __asm__ volatile("" ::: "memory");
    }
    a += kPairStep;
    b += kLanes;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Isa::store(out + static_cast<std::size_t>(i) * out_stride + v * kLanes,
                 part.last ? Isa::mul(Isa::to_float(sums[i][v]), Isa::set1(row_scales[i]))
                           : Isa::as_float(sums[i][v]));
    }
  }
}

template <class Isa, Rows kRows, int kVectors, int kQueries = Isa::kQueries>
[[gnu::always_inline]] inline void dot_rows(std::size_t queries,
                                            const std::int32_t* a,
                                            const std::int32_t* b,
                                            std::size_t b_stride,
                                            std::size_t pairs,
                                            const float* row_scales,
                                            float* out,
                                            std::size_t out_stride,
                                            Part part) {
  if (queries == kQueries) {
    dot_tile<Isa, kRows, kQueries, kVectors>(
        a, b, b_stride, pairs, row_scales, out, out_stride, part);
  } else if constexpr (kQueries > 1) {
    dot_rows<Isa, kRows, kVectors, kQueries - 1>(
        queries, a, b, b_stride, pairs, row_scales, out, out_stride, part);
  }
}

// `vectors` of them, b_stride apart; out side by side.
template <class Isa, Rows kRows>
void dots(std::size_t queries,
          std::size_t vectors,
          const std::int32_t* a,
          const std::int32_t* b,
          std::size_t b_stride,
          std::size_t pairs,
          const float* row_scales,
          float* out,
          std::size_t out_stride,
          Part part = {}) {
  std::size_t v = 0;
  for (; v + Isa::kGranules <= vectors; v += Isa::kGranules) {
    dot_rows<Isa, kRows, Isa::kGranules>(queries,
                                         a,
                                         b + v * b_stride,
                                         b_stride,
                                         pairs,
                                         row_scales,
                                         out + v * kLanes,
                                         out_stride,
                                         part);
  }
  for (; v < vectors; ++v) {
    dot_rows<Isa, kRows, 1>(queries,
                            a,
                            b + v * b_stride,
                            b_stride,
                            pairs,
                            row_scales,
                            out + v * kLanes,
                            out_stride,
                            part);
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
