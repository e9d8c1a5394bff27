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

template <class Isa, class Codec, int kPair>
[[gnu::always_inline]] inline void prefetch_quarter(const std::uint8_t* record) {
  constexpr std::size_t kQuarter = (Codec::kLayout.record_bytes + 255) / 256 * 64;
  for (std::size_t at = 0; at < kQuarter; at += 64) {
    Isa::prefetch(record + kPrefetchBytes + kPair * kQuarter + at);
  }
}

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
    prefetch_quarter<Isa, Codec, kPair>(record);
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

// Steps of four elements whose products an instruction set can sum in 16 bits, two a lane and step.
constexpr int narrow_steps(int max_code) {
  return 32767 / (max_code * 127 * 2);
}

// Two steps of a run; `kFirst`: the run begins here.
template <class Isa, class Codec, int kRows, int kPair, bool kFirst, bool kPrefetch>
[[gnu::always_inline]] inline void narrow_pair(const std::uint8_t* record,
                                               const std::uint32_t* a,
                                               int group,
                                               typename Isa::I (&sums)[kRows]) {
  typename Isa::W even;
  typename Isa::W odd;
  Codec::template codes<Isa, kPair>(record, group, even, odd);
  if constexpr (kPrefetch) {
    prefetch_quarter<Isa, Codec, kPair>(record);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    sums[r] = Isa::template narrow_dot<kFirst>(sums[r], even, a[(2 * kPair) * kRows + r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    sums[r] = Isa::template narrow_dot<false>(sums[r], odd, a[(2 * kPair + 1) * kRows + r]);
  }
}

// The pairs [kPair, kEnd) of a record in runs of kRun steps, each summed in 16 bits, then joined.
template <class Isa, class Codec, int kRows, int kPair, int kEnd, int kRun, bool kPrefetch>
[[gnu::always_inline]] inline void narrow_dots(const std::uint8_t* record,
                                               const std::uint32_t* a,
                                               int group,
                                               typename Isa::I (&dots)[kRows][1]) {
  typename Isa::I sums[kRows];
  narrow_pair<Isa, Codec, kRows, kPair, true, kPrefetch>(record, a, group, sums);
  if constexpr (kRun >= 4) {
    narrow_pair<Isa, Codec, kRows, kPair + 1, false, kPrefetch>(record, a, group, sums);
  }
  if constexpr (kRun >= 8) {
    narrow_pair<Isa, Codec, kRows, kPair + 2, false, kPrefetch>(record, a, group, sums);
    narrow_pair<Isa, Codec, kRows, kPair + 3, false, kPrefetch>(record, a, group, sums);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    dots[r][0] = Isa::join_narrow(dots[r][0], sums[r]);
  }
  if constexpr (kPair + kRun / 2 < kEnd) {
    narrow_dots<Isa, Codec, kRows, kPair + kRun / 2, kEnd, kRun, kPrefetch>(record, a, group, dots);
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

// All products of a widened record.
template <class Isa, int kRows>
[[gnu::always_inline]] inline void widened_dots(const std::uint8_t* record,
                                                const std::uint32_t* a,
                                                typename Isa::I (&dots)[kRows][1]) {
#pragma GCC unroll 16
  for (int half = 0; half < 16; ++half) {
    const typename Isa::W w = Isa::load_codes(record + half * 64);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      dots[r][0] = half == 0 ? Isa::template dot2<true>(dots[r][0], w, a[r])
                             : Isa::template dot2<false>(dots[r][0], w, a[half * kRows + r]);
    }
  }
}

// The dot products of one part of a record for the groups from `group` on.
template <class Isa, class Codec, int kRows, int kPart, bool kPrefetch>
[[gnu::always_inline]] inline void part_dots(const std::uint8_t* record,
                                             const std::uint32_t* a,
                                             int group,
                                             typename Isa::I (&dots)[kRows][Isa::kGroups]) {
  if constexpr (Codec::kSteps == 16) {
    widened_dots<Isa, kRows>(record, a, dots);
  } else {
    start_dots<Isa, Codec, kRows>(a + (Codec::kParts == 1 ? 10 : 11 + kPart) * kRows, dots);
    constexpr int kBegin = kPart * 2;
    constexpr int kEnd = kBegin + 4 / Codec::kParts;
    if constexpr (Isa::kNarrowSums && !Codec::kWide) {
      constexpr int kSteps = narrow_steps(Codec::kMaxCode);
      constexpr int kRun = kSteps >= 8 ? 8 : kSteps >= 4 ? 4 : 2;
      narrow_dots<Isa, Codec, kRows, kBegin, kEnd, kRun, kPrefetch>(record, a, group, dots);
    } else {
      pair_step<Isa, Codec, kRows, kBegin, kPrefetch>(record, a, group, dots);
      pair_step<Isa, Codec, kRows, kBegin + 1, kPrefetch>(record, a, group, dots);
      if constexpr (kEnd - kBegin == 4) {
        pair_step<Isa, Codec, kRows, kBegin + 2, kPrefetch>(record, a, group, dots);
        pair_step<Isa, Codec, kRows, kBegin + 3, kPrefetch>(record, a, group, dots);
      }
    }
  }
}

// One part of a record: dot products joined to the sums.
template <class Isa, class Codec, int kRows, int kPart, bool kPrefetch>
[[gnu::always_inline]] inline void join_part(const std::uint8_t* header,
                                             const std::uint8_t* record,
                                             const std::uint32_t* a,
                                             int group,
                                             typename Isa::F (*sums)[Isa::kGroups]) {
  using F = typename Isa::F;
  typename Isa::I dots[kRows][Isa::kGroups];
  part_dots<Isa, Codec, kRows, kPart, kPrefetch>(record, a, group, dots);
  const auto* activation_scales = reinterpret_cast<const float*>(a + Codec::kSteps * kRows);
  const auto* scaled_sums = reinterpret_cast<const float*>(a + (Codec::kSteps + 1) * kRows);
#pragma GCC unroll 2
  for (int g = 0; g < Isa::kGroups; ++g) {
    const F scale = Codec::template scale<Isa>(header, record, group + g, kPart);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F both = Isa::mul(scale, Isa::set1(activation_scales[r]));
      sums[r][g] = Isa::fma(Isa::to_float(dots[r][g]), both, sums[r][g]);
    }
    if constexpr (Codec::kHasMin) {
      const F min = Codec::template min<Isa>(header, record, group + g);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        sums[r][g] = Isa::fma(min, Isa::set1(scaled_sums[r]), sums[r][g]);
      }
    }
  }
}

template <class Isa, class Codec, int kRows, bool kPrefetch>
[[gnu::always_inline]] inline void join_record(const std::uint8_t* header,
                                               const std::uint8_t* record,
                                               const std::uint32_t* a,
                                               int group,
                                               typename Isa::F (*sums)[Isa::kGroups]) {
  join_part<Isa, Codec, kRows, 0, kPrefetch>(header, record, a, group, sums);
  if constexpr (Codec::kParts == 2) {
    join_part<Isa, Codec, kRows, 1, kPrefetch>(header, record, a, group, sums);
  }
}

// The next panel's bytes, fetched while tiles of this one are multiplied: so many a block.
struct FetchAhead {
  const std::uint8_t* at;  // up to `end`
  const std::uint8_t* end;
  std::size_t a_block;  // bytes
};

// One tile: kRows activations times the groups of 16 output features that a record of this codec
// holds, in turns that fit the registers. `kPrefetch`: the panel itself comes from memory.
template <class Isa, class Codec, int kRows, bool kPrefetch>
[[gnu::noinline]] void quant_tile(const std::uint8_t* panel,
                                  std::size_t blocks,
                                  const std::uint32_t* a,
                                  FetchAhead ahead,
                                  float* y,
                                  std::size_t y_stride,
                                  std::size_t columns,
                                  bool accumulate) {
  constexpr PanelLayout kLayout = Codec::kLayout;
  constexpr int kAtOnce = Isa::kGroups;
  constexpr int kTurns = Codec::template tile_groups<Isa>() / kAtOnce;
  constexpr std::size_t kWords = activation_words(Codec::kSteps) * kRows;
  typename Isa::F sums[kTurns][kRows][kAtOnce];
#pragma GCC unroll 2
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int g = 0; g < kAtOnce; ++g) {
        sums[turn][r][g] = Isa::zero();
      }
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
    if constexpr (!kPrefetch) {
      for (std::size_t at = 0; at < ahead.a_block && ahead.at < ahead.end; at += 64) {
        Isa::prefetch_far(ahead.at);
        ahead.at += 64;
      }
    }
    join_record<Isa, Codec, kRows, kPrefetch>(header, record, a, 0, sums[0]);
    if constexpr (kTurns == 2) {
      // The second turn spreads the activations once more: the compiler would keep all 32 vectors
      // of the first on the stack, a store and a load for each.
      __asm__ volatile("" ::: "memory");
      join_record<Isa, Codec, kRows, false>(header, record, a, kAtOnce, sums[1]);
    }
    record += kLayout.record_bytes;
    a += kWords;
  }
#pragma GCC unroll 2
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int g = 0; g < kAtOnce; ++g) {
        const int column = (turn * kAtOnce + g) * static_cast<int>(kLanes);
        store_columns<Isa>(
            y + r * y_stride + column, sums[turn][r][g], columns, column, accumulate);
      }
    }
  }
}

template <class Isa, class Codec, bool kPrefetch, int kRows = Isa::kQuantRows>
[[gnu::always_inline]] inline void dispatch_quant_tile(std::size_t rows,
                                                       const std::uint8_t* panel,
                                                       std::size_t blocks,
                                                       const std::uint32_t* a,
                                                       const FetchAhead& ahead,
                                                       float* y,
                                                       std::size_t y_stride,
                                                       std::size_t columns,
                                                       bool accumulate) {
  if (rows == kRows) {
    quant_tile<Isa, Codec, kRows, kPrefetch>(
        panel, blocks, a, ahead, y, y_stride, columns, accumulate);
  } else if constexpr (kRows > 1) {
    dispatch_quant_tile<Isa, Codec, kPrefetch, kRows - 1>(
        rows, panel, blocks, a, ahead, y, y_stride, columns, accumulate);
  }
}

// All tiles of [first_tile, end_tile) against one panel. activations: of the first of them.
// prefetch: the first tile fetches the panel. ahead: what all tiles together fetch beside it, or
// null.
template <class Isa, class Codec>
void quant_panel(const MatmulJob& job,
                 std::size_t panel,
                 const std::uint8_t* bytes,
                 const std::uint32_t* activations,
                 std::size_t first_tile,
                 std::size_t end_tile,
                 bool prefetch,
                 const std::uint8_t* ahead) {
  const std::size_t blocks = job.cols / kQuantBlock;
  const RowTiles tiles = job.tiles;  // a copy: its divisions are done once
  const std::size_t first_row = tile_first(tiles, first_tile);
  constexpr std::size_t kWords = activation_words(Codec::kSteps);
  constexpr std::size_t kGroups = Codec::template tile_groups<Isa>();
  const std::size_t steps = (end_tile - first_tile) * (2 / kGroups) * blocks;
  const std::size_t a_block = (job.panel_bytes / steps + 63) / 64 * 64;
  FetchAhead fetch{ahead, ahead == nullptr ? ahead : ahead + job.panel_bytes, a_block};
  for (std::size_t group = 0; group < 2; group += kGroups) {
    const std::size_t column = panel * kPanelRows + group * kLanes;
    if (column >= job.rows) {
      break;
    }
    const std::uint32_t* a = activations;
    float* y = job.y + first_row * job.y_stride + column;
    for (std::size_t tile = first_tile; tile < end_tile; ++tile) {
      const std::size_t rows = tile_size(tiles, tile);
      if (prefetch && tile == first_tile) {
        dispatch_quant_tile<Isa, Codec, true>(
            rows, bytes, blocks, a, fetch, y, job.y_stride, job.rows - column, job.accumulate);
      } else {
        dispatch_quant_tile<Isa, Codec, false>(
            rows, bytes, blocks, a, fetch, y, job.y_stride, job.rows - column, job.accumulate);
      }
      fetch.at = fetch.at < fetch.end ? fetch.at + a_block * blocks : fetch.end;
      a += rows * blocks * kWords;
      y += rows * job.y_stride;
    }
    bytes += blocks * Codec::kLayout.record_bytes;  // expanded: where the other group begins
  }
}

template <class Isa, class From, int kPair>
[[gnu::always_inline]] inline void expand_pair(const std::uint8_t* record,
                                               int group,
                                               std::uint8_t* out,
                                               int out_group) {
  using To = ExpandedCodec<Isa, From>;
  typename Isa::W even;
  typename Isa::W odd;
  From::template codes<Isa, kPair>(record, group, even, odd);
  Isa::store_codes(out + To::code_at(2 * kPair, out_group), even);
  Isa::store_codes(out + To::code_at(2 * kPair + 1, out_group), odd);
}

template <class Isa, class From>
void expand_panel(const std::uint8_t* record, std::size_t blocks, std::uint8_t* out) {
  using To = ExpandedCodec<Isa, From>;
  const std::uint8_t* header = record;
  for (std::size_t block = 0; block < blocks; ++block) {
    if (From::kLayout.header_bytes != 0 && block % From::kLayout.header_blocks == 0) {
      header = record;
      record += From::kLayout.header_bytes;
    }
    for (std::size_t at = 0; at < From::kLayout.record_bytes; at += 64) {
      Isa::prefetch(record + kPrefetchBytes + at);
    }
    for (int g = 0; g < 2; ++g) {
      const int own = g % Isa::kGroups;
      std::uint8_t* to = out + (g / Isa::kGroups * blocks + block) * To::kLayout.record_bytes;
      expand_pair<Isa, From, 0>(record, g, to, own);
      expand_pair<Isa, From, 1>(record, g, to, own);
      expand_pair<Isa, From, 2>(record, g, to, own);
      expand_pair<Isa, From, 3>(record, g, to, own);
      for (int part = 0; part < From::kParts; ++part) {
        Isa::store(reinterpret_cast<float*>(to + To::scale_at(part, own)),
                   From::template scale<Isa>(header, record, g, part));
      }
      if constexpr (From::kHasMin) {
        Isa::store(reinterpret_cast<float*>(to + To::min_at(own)),
                   From::template min<Isa>(header, record, g));
      }
    }
    record += From::kLayout.record_bytes;
  }
}

// Q8_0 as signed 16-bit codes, and the activations to go with it.
template <class Isa>
void widen_panel(const std::uint8_t* record, std::size_t blocks, std::uint8_t* out) {
  using From = FileCodec<DType::Q8_0>;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t at = 0; at < From::kLayout.record_bytes; at += 64) {
      Isa::prefetch(record + kPrefetchBytes + at);
    }
    for (std::size_t g = 0; g < 2; ++g) {
      std::uint8_t* to = out + (g * blocks + block) * WidenedCodec::kLayout.record_bytes;
      for (std::size_t step = 0; step < 8; ++step) {
        Isa::widen_codes(Isa::load_codes(record + (step * 2 + g) * 64), to + step * 128);
      }
      Isa::store(reinterpret_cast<float*>(to + WidenedCodec::kLayout.scale_at),
                 From::template scale<Isa>(record, record, static_cast<int>(g), 0));
    }
    record += From::kLayout.record_bytes;
  }
}
template <class Isa>
void widen_activations(const MatmulJob& job,
                       const std::uint32_t* in,
                       std::size_t first_tile,
                       std::size_t end_tile,
                       std::uint32_t* out) {
  for (std::size_t tile = first_tile; tile < end_tile; ++tile) {
    const std::size_t rows = tile_size(job.tiles, tile);
    for (std::size_t block = 0; block < job.cols / kQuantBlock; ++block) {
      for (std::size_t step = 0; step < 8; ++step) {
        for (std::size_t r = 0; r < rows; ++r) {
          const std::uint64_t pairs = Isa::widen_activation(in[step * rows + r]);
          out[2 * step * rows + r] = static_cast<std::uint32_t>(pairs);
          out[(2 * step + 1) * rows + r] = static_cast<std::uint32_t>(pairs >> 32);
        }
      }
      __builtin_memcpy(out + 16 * rows, in + 8 * rows, (kActivationWords - 8) * rows * sizeof(*in));
      in += kActivationWords * rows;
      out += activation_words(WidenedCodec::kSteps) * rows;
    }
  }
}

// Tiles from which taking a panel's codes apart once pays; 0: never.
template <class Isa>
constexpr std::size_t expand_from(DType type) {
  switch (type) {
    case DType::Q6_K:
      return 4;
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q5_K:
      return Isa::kNarrowSums ? 2 : 10;
    case DType::Q4_K:
      return Isa::kNarrowSums ? 4 : 10;
    case DType::Q4_0:
    case DType::Q4_1:
      return Isa::kNarrowSums ? 12 : 0;
    case DType::Q8_0:
      return Isa::kNarrowSums ? 4 : 0;
    default:
      return 0;
  }
}

template <class Isa, DType kType>
void quant_matmul(const MatmulJob& job) {
  using Codec = FileCodec<kType>;
  constexpr std::size_t kExpandFrom = expand_from<Isa>(kType);
  constexpr bool kWiden = kType == DType::Q8_0 && kExpandFrom != 0;
  constexpr int kSteps = kWiden ? WidenedCodec::kSteps : Codec::kSteps;
  const std::size_t blocks = job.cols / kQuantBlock;
  const std::size_t chunk = chunk_tiles(job.cols, Isa::kQuantRows, kSteps);
  const auto* weight = reinterpret_cast<const std::uint8_t*>(job.weight);
  auto* scratch = reinterpret_cast<std::uint8_t*>(job.scratch);
  // The stream's own prefetches begin kPrefetchBytes in.
  for (std::size_t at = 0; at < kPrefetchBytes; at += 64) {
    Isa::prefetch(weight + job.first_panel * job.panel_bytes + at);
  }
  for (std::size_t tile = job.first_tile; tile < job.end_tile; tile += chunk) {
    const std::size_t end = tile + chunk < job.end_tile ? tile + chunk : job.end_tile;
    const std::uint32_t* activations =
        job.activations + tile_first(job.tiles, tile) * blocks * kActivationWords;
    const bool expand = kExpandFrom != 0 && end - tile >= kExpandFrom;
    auto* widened = reinterpret_cast<std::uint32_t*>(scratch + expanded_bytes(job.cols));
    if constexpr (kWiden) {
      if (expand) {
        widen_activations<Isa>(job, activations, tile, end, widened);
      }
    }
    for (std::size_t panel = job.first_panel; panel < job.end_panel; ++panel) {
      const std::uint8_t* bytes = weight + panel * job.panel_bytes;
      // One tile streams the weights; several are busy enough to have the next panel come
      // meanwhile.
      const bool several = end - tile > 1;
      const std::uint8_t* next =
          several && panel + 1 < job.end_panel ? bytes + job.panel_bytes : nullptr;
      if constexpr (kWiden) {
        if (expand) {
          widen_panel<Isa>(bytes, blocks, scratch);
          quant_panel<Isa, WidenedCodec>(job, panel, scratch, widened, tile, end, false, next);
          continue;
        }
      } else if constexpr (kExpandFrom != 0) {
        if (expand) {
          expand_panel<Isa, Codec>(bytes, blocks, scratch);
          quant_panel<Isa, ExpandedCodec<Isa, Codec>>(
              job, panel, scratch, activations, tile, end, false, next);
          continue;
        }
      }
      quant_panel<Isa, Codec>(
          job, panel, bytes, activations, tile, end, !several || panel == job.first_panel, next);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
