// Brings a weight from a file's blocks into the layout that the products' kernels read
// (matmul_layout.h), on the host: one run of bytes that is then copied to the device.
//
// Thread: pure functions; tiles may be packed by several threads at once. Failure: none; callers
// have checked the weight (check_weight).
#pragma once

#include <cstddef>
#include <span>

#include "kernels/cuda/matmul_layout.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

// Where the parts of a packed weight lie: bytes from its beginning, each a multiple of 256.
struct PackedPlaces {
  std::size_t scales = 0;  // codes or floats begin at 0
  std::size_t mins = 0;
  std::size_t supers = 0;
  std::size_t bytes = 0;  // all of them
};
PackedPlaces packed_places(DType dtype, std::size_t rows, std::size_t cols);
std::size_t tiles_of(std::size_t rows);

// Packs the tile's 16 rows (fewer at the end: zeros) into `out`, the whole weight's bytes.
void pack_tile(const WeightView& weight, std::size_t tile, std::span<std::byte> out);

// FP8 E4M3 codes, [rows][cols], with a scale a row kept apart: [rows] float32 behind the codes.
PackedPlaces packed_places_e4m3(std::size_t rows, std::size_t cols);
void pack_tile_e4m3(std::span<const std::byte> codes,
                    std::size_t rows,
                    std::size_t cols,
                    std::size_t tile,
                    std::span<std::byte> out);

// The kernels' view of packed bytes at `base`.
QuantMatrix quant_matrix(DType dtype, std::size_t rows, std::size_t cols, const std::byte* base);
FloatMatrix float_matrix(std::size_t rows, std::size_t cols, const std::byte* base);

}  // namespace baton::kernels::cuda
