// F32, F16 and BF16 weights times float activations, for any instruction set. Packed panels hold
// [K][32 output features]. An output is one chain of fma over K, ascending.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::kernels::cpu {
namespace {

// `left`: valid columns from the tile's first on; `at`: this vector's place in the tile.
template <class Isa>
[[gnu::always_inline]] inline void store_columns(
    float* y, typename Isa::F sum, std::size_t left, std::size_t at, bool accumulate) {
  if (left >= at + kLanes) {
    Isa::store(y, accumulate ? Isa::add(Isa::load(y), sum) : sum);
  } else if (left > at) {
    const std::size_t n = left - at;
    Isa::store_n(y, accumulate ? Isa::add(Isa::load_n(y, n), sum) : sum, n);
  }
}

template <class Isa, DType kType>
[[gnu::always_inline]] inline typename Isa::F load_weight(const std::uint8_t* p) {
  if constexpr (kType == DType::F32) {
    return Isa::load(reinterpret_cast<const float*>(p));
  } else if constexpr (kType == DType::F16) {
    return Isa::load(reinterpret_cast<const std::uint16_t*>(p));
  } else {
    return Isa::load_bfloat(reinterpret_cast<const std::uint16_t*>(p));
  }
}

// Groups of 16 output features a tile of so many rows holds: both, so that a panel is read through
// once, where the registers allow it.
template <class Isa>
constexpr int float_groups(std::size_t rows) {
  return Isa::kGroups == 2 || 2 * rows <= static_cast<std::size_t>(Isa::kFloatRows) ? 2 : 1;
}

template <class Isa, DType kType, int kRows, bool kPrefetch>
[[gnu::noinline]] void float_tile(const std::uint8_t* panel,
                                  std::size_t cols,
                                  const float* x,
                                  int first_group,
                                  float* y,
                                  std::size_t y_stride,
                                  std::size_t columns,
                                  bool accumulate) {
  using F = typename Isa::F;
  constexpr int kGroups = float_groups<Isa>(kRows);
  constexpr std::size_t kElement = info(kType).block_bytes;
  F sums[kRows][kGroups];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      sums[r][g] = Isa::zero();
    }
  }
  const std::uint8_t* w = panel + static_cast<std::size_t>(first_group) * kLanes * kElement;
  for (std::size_t k = 0; k < cols; ++k) {
    if constexpr (kPrefetch) {
      Isa::prefetch(w + 2048);
      if constexpr (kElement == 4) {
        Isa::prefetch(w + 2048 + 64);
      }
    }
    F weight[kGroups];
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      weight[g] = load_weight<Isa, kType>(w + static_cast<std::size_t>(g) * kLanes * kElement);
    }
    w += kPanelRows * kElement;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F activation = Isa::set1(x[static_cast<std::size_t>(r) * cols + k]);
#pragma GCC unroll 2
      for (int g = 0; g < kGroups; ++g) {
        sums[r][g] = Isa::fma(activation, weight[g], sums[r][g]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) {
      store_columns<Isa>(y + r * y_stride + g * 16, sums[r][g], columns, g * 16, accumulate);
    }
  }
}

template <class Isa, DType kType, bool kPrefetch, int kRows = Isa::kFloatRows>
[[gnu::always_inline]] inline void dispatch_float_tile(std::size_t rows,
                                                       const std::uint8_t* panel,
                                                       std::size_t cols,
                                                       const float* x,
                                                       int group,
                                                       float* y,
                                                       std::size_t y_stride,
                                                       std::size_t columns,
                                                       bool accumulate) {
  if (rows == kRows) {
    float_tile<Isa, kType, kRows, kPrefetch>(
        panel, cols, x, group, y, y_stride, columns, accumulate);
  } else if constexpr (kRows > 1) {
    dispatch_float_tile<Isa, kType, kPrefetch, kRows - 1>(
        rows, panel, cols, x, group, y, y_stride, columns, accumulate);
  }
}

template <class Isa, DType kType>
void float_panel(const MatmulJob& job,
                 std::size_t panel,
                 const std::uint8_t* bytes,
                 std::size_t first_tile,
                 std::size_t end_tile,
                 bool prefetch) {
  for (std::size_t tile = first_tile; tile < end_tile; ++tile) {
    const std::size_t first = tile_first(job.tiles, tile);
    const std::size_t rows = tile_size(job.tiles, tile);
    for (int group = 0; group < 2; group += float_groups<Isa>(rows)) {
      const std::size_t column = panel * kPanelRows + static_cast<std::size_t>(group) * kLanes;
      if (column >= job.rows) {
        break;
      }
      const float* x = job.x + first * job.cols;
      float* y = job.y + first * job.y_stride + column;
      if (prefetch && tile == first_tile && group == 0) {
        dispatch_float_tile<Isa, kType, true>(
            rows, bytes, job.cols, x, group, y, job.y_stride, job.rows - column, job.accumulate);
      } else {
        dispatch_float_tile<Isa, kType, false>(
            rows, bytes, job.cols, x, group, y, job.y_stride, job.rows - column, job.accumulate);
      }
    }
  }
}

template <class Isa, DType kType>
void float_matmul(const MatmulJob& job) {
  constexpr std::size_t kElement = info(kType).block_bytes;
  constexpr std::size_t kActivationBytesF = 512 << 10;
  const std::size_t tile_bytes = job.cols * sizeof(float) * std::size_t{Isa::kFloatRows};
  const std::size_t chunk = kActivationBytesF / tile_bytes < 4 ? 4 : kActivationBytesF / tile_bytes;
  for (std::size_t tile = job.first_tile; tile < job.end_tile; tile += chunk) {
    const std::size_t end = tile + chunk < job.end_tile ? tile + chunk : job.end_tile;
    for (std::size_t panel = job.first_panel; panel < job.end_panel; ++panel) {
      const auto* bytes =
          reinterpret_cast<const std::uint8_t*>(job.weight) + panel * job.panel_bytes;
      if (kElement == 2 && end - tile > 2) {
        auto* wide = reinterpret_cast<float*>(job.scratch);
        for (std::size_t i = 0; i < job.cols * kPanelRows; i += kLanes) {
          Isa::prefetch(bytes + i * kElement + 2048);
          Isa::store(wide + i, load_weight<Isa, kType>(bytes + i * kElement));
        }
        const auto* expanded = reinterpret_cast<const std::uint8_t*>(wide);
        float_panel<Isa, DType::F32>(job, panel, expanded, tile, end, false);
      } else {
        float_panel<Isa, kType>(job, panel, bytes, tile, end, true);
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
