// BF16 weights times activations rounded to BF16, by AMX tiles: engine.float_path amx_bf16. Other
// bits than float_matmul.h's, so another numerics family. An output's arithmetic is fixed all the
// same: 32 elements of K a tile product, ascending; within one (TDPBF16PS) a chain of fma over the
// even elements, one over the odd ones, their sum added to the total; denormals are zeros, in and
// out. That order is the instruction's own, whatever the rows: a row's bits depend on nothing else.
//
// Only AMX translation units include this. Thread: pure, but for the thread's own tile registers,
// which are free again on return. Failure: none.
#pragma once

#include "kernels/cpu/float_matmul.h"
#include "kernels/cpu/tile_config.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kBfloatStep = 32;  // elements of K in a tile's row
constexpr std::size_t kBfloatRows = 16;  // rows of activations in a tile
constexpr int kBfloatTiles = 2;          // such tiles at once

// Rounded to nearest, ties to even; a NaN stays one.
template <class Isa>
[[gnu::always_inline]] inline void round_to_bfloat(const float* x, std::uint16_t* out) {
  std::uint32_t bits[kLanes];
  Isa::store(reinterpret_cast<float*>(bits), Isa::load(x));
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::uint32_t rounded = bits[i] + 0x7FFF + ((bits[i] >> 16) & 1);
    const bool nan = (bits[i] & 0x7FFFFFFF) > 0x7F800000;
    out[i] = static_cast<std::uint16_t>((nan ? bits[i] | 0x00400000 : rounded) >> 16);
  }
}

// Rows [rows][cols] as tiles [steps][16 rows][32]; behind the last column zeros, which add nothing.
template <class Isa>
void bfloat_activations(const float* x, std::size_t rows, std::size_t cols, std::uint16_t* out) {
  for (std::size_t k = 0; k < cols; k += kBfloatStep, out += kBfloatRows * kBfloatStep) {
    for (std::size_t r = 0; r < rows; ++r) {
      const float* in = x + r * cols + k;
      for (std::size_t at = 0; at < kBfloatStep; at += kLanes) {
        float lanes[kLanes] = {};
        if (k + at + kLanes <= cols) {
          __builtin_memcpy(lanes, in + at, sizeof(lanes));
        } else if (k + at < cols) {
          __builtin_memcpy(lanes, in + at, (cols - k - at) * sizeof(float));
        }
        round_to_bfloat<Isa>(lanes, out + r * kBfloatStep + at);
      }
    }
  }
}

// A panel [cols][32 features] as tiles [steps][2 groups][16 pairs][16 features][2].
inline void bfloat_weights(const std::uint16_t* panel, std::size_t cols, std::uint16_t* out) {
  const __m512i low = _mm512_set_epi16(47,
                                       15,
                                       46,
                                       14,
                                       45,
                                       13,
                                       44,
                                       12,
                                       43,
                                       11,
                                       42,
                                       10,
                                       41,
                                       9,
                                       40,
                                       8,
                                       39,
                                       7,
                                       38,
                                       6,
                                       37,
                                       5,
                                       36,
                                       4,
                                       35,
                                       3,
                                       34,
                                       2,
                                       33,
                                       1,
                                       32,
                                       0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const std::size_t padded = (cols + kBfloatStep - 1) / kBfloatStep * kBfloatStep;
  for (std::size_t k = 0; k < padded; k += 2) {
    const auto row = [&](std::size_t i) __attribute__((always_inline)) {
      return i < cols ? _mm512_loadu_si512(panel + i * kPanelRows) : _mm512_setzero_si512();
    };
    const __m512i even = row(k);
    const __m512i odd = row(k + 1);
    std::uint16_t* tile = out + k / kBfloatStep * (2 * 16 * 32) + k % kBfloatStep / 2 * 32;
    _mm512_storeu_si512(tile, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_storeu_si512(tile + 16 * 32, _mm512_permutex2var_epi16(even, high, odd));
  }
}

// Registers: results 0-3 ([tile][group]), activations 4-5, weights 6-7.
inline TileConfig bfloat_tiles(std::size_t rows) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    const std::size_t first = i < 4 ? static_cast<std::size_t>(i / 2) : i < 6 ? i - 4U : 0;
    const std::size_t left = rows > first * kBfloatRows ? rows - first * kBfloatRows : 0;
    const std::size_t own = i >= 6 || left > kBfloatRows ? kBfloatRows : left;
    set_tile(config, i, static_cast<int>(own), own == 0 ? 0 : 64);
  }
  return config;
}

template <class Tile, bool kSecond>
[[gnu::always_inline]] inline void bfloat_products(Tile& tile,
                                                   const std::uint16_t* a,
                                                   std::size_t tile_stride,
                                                   const std::uint16_t* weights,
                                                   std::size_t steps,
                                                   float* out) {
  tile.template zero<0>();
  tile.template zero<1>();
  if constexpr (kSecond) {
    tile.template zero<2>();
    tile.template zero<3>();
  }
  for (std::size_t step = 0; step < steps; ++step) {
    tile.template load<6>(weights + step * 2 * 512, 64);
    tile.template load<7>(weights + step * 2 * 512 + 512, 64);
    tile.template load<4>(a + step * 512, 64);
    tile.template multiply_bfloats<0, 4, 6>();
    tile.template multiply_bfloats<1, 4, 7>();
    if constexpr (kSecond) {
      tile.template load<5>(a + tile_stride + step * 512, 64);
      tile.template multiply_bfloats<2, 5, 6>();
      tile.template multiply_bfloats<3, 5, 7>();
    }
  }
  // [32 rows][32 features]
  tile.template store<0>(out, 128);
  tile.template store<1>(out + 16, 128);
  if constexpr (kSecond) {
    tile.template store<2>(out + 16 * 32, 128);
    tile.template store<3>(out + 16 * 32 + 16, 128);
  }
}

template <class Isa, class Tile>
void amx_bfloat_matmul(const MatmulJob& job) {
  const std::size_t steps = (job.cols + kBfloatStep - 1) / kBfloatStep;
  const std::size_t tile_stride = steps * kBfloatRows * kBfloatStep;
  auto* results = reinterpret_cast<float*>(job.scratch);
  auto* a = reinterpret_cast<std::uint16_t*>(results + kBfloatTiles * kBfloatRows * kPanelRows);
  std::uint16_t* weights = a + kBfloatTiles * tile_stride;
  const std::size_t first_row = tile_first(job.tiles, job.first_tile);
  const std::size_t end_row = tile_first(job.tiles, job.end_tile);
  for (std::size_t at = first_row; at < end_row; at += kBfloatTiles * kBfloatRows) {
    const std::size_t left = end_row - at;
    const std::size_t rows = left < kBfloatTiles * kBfloatRows ? left : kBfloatTiles * kBfloatRows;
    const std::size_t head = rows < kBfloatRows ? rows : kBfloatRows;
    bfloat_activations<Isa>(job.x + at * job.cols, head, job.cols, a);
    if (rows > head) {
      bfloat_activations<Isa>(
          job.x + (at + head) * job.cols, rows - head, job.cols, a + tile_stride);
    }
    Tile tile(bfloat_tiles(rows));
    for (std::size_t panel = job.first_panel; panel < job.end_panel; ++panel) {
      bfloat_weights(reinterpret_cast<const std::uint16_t*>(job.weight + panel * job.panel_bytes),
                     job.cols,
                     weights);
      if (rows > kBfloatRows) {
        bfloat_products<Tile, true>(tile, a, tile_stride, weights, steps, results);
      } else {
        bfloat_products<Tile, false>(tile, a, tile_stride, weights, steps, results);
      }
      float* y = job.y + at * job.y_stride + panel * kPanelRows;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t g = 0; g < kPanelRows; g += kLanes) {
          store_columns<Isa>(y + r * job.y_stride + g,
                             Isa::load(results + r * kPanelRows + g),
                             job.rows - panel * kPanelRows,
                             g,
                             job.accumulate);
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
