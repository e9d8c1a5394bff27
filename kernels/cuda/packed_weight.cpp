#include "kernels/cuda/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/gguf_blocks.h"
#include "kernels/half.h"

namespace baton::kernels::cuda {
namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kAlignment = 256;
constexpr std::size_t kFloatPad = 64;  // K of float weights is filled up to its multiples

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_nibbles(DType dtype) {
  return dtype == DType::Q4_0 || dtype == DType::Q4_1 || dtype == DType::Q4_K;
}

ScaleKind scale_kind(DType dtype) {
  return dtype == DType::Q4_K || dtype == DType::Q5_K ? ScaleKind::K
         : dtype == DType::Q6_K                       ? ScaleKind::K16
                                                      : ScaleKind::Half;
}

// Bytes of one group's scales, or mins, in a tile.
std::size_t scale_bytes(DType dtype) {
  return scale_kind(dtype) == ScaleKind::K ? kTileRows : 2 * kTileRows;
}

std::size_t super_bytes(DType dtype) {
  switch (scale_kind(dtype)) {
    case ScaleKind::Half:
      return 0;
    case ScaleKind::K:
      return 2 * kTileRows * sizeof(std::uint16_t);
    case ScaleKind::K16:
      return kTileRows * sizeof(std::uint16_t);
  }
  return 0;
}

std::size_t padded(std::size_t cols) {
  return (cols + kFloatPad - 1) / kFloatPad * kFloatPad;
}

template <class T>
void put(std::byte* at, std::size_t index, T value) {
  std::memcpy(at + index * sizeof(T), &value, sizeof(T));
}

// One row's place in a tile, and where its parts go.
struct RowWriter {
  DType dtype;
  std::size_t row;   // in the tile
  std::byte* codes;  // of the tile
  std::byte* scales;
  std::byte* mins;
  std::byte* supers;

  void code(std::size_t k, std::int32_t value) const {
    const std::size_t at_k = k % kGroup;
    const std::size_t fragment = row / 8 + 2 * (at_k / 16);
    const std::size_t lane = row % 8 * 4 + at_k % 16 / 4;
    const std::size_t cell = k / kGroup * kLanes + lane;
    if (is_nibbles(dtype)) {
      std::byte& byte = codes[(cell * 2 + fragment / 2) * 4 + at_k % 4];
      byte |= static_cast<std::byte>(value << (4 * (fragment % 2)));
    } else {
      codes[(cell * 4 + fragment) * 4 + at_k % 4] = static_cast<std::byte>(value);
    }
  }

  void half_scales(std::size_t group, float scale, float min) const {
    put(scales, group * kTileRows + row, float_to_half(scale));
    if (quant_shape(dtype).has_min) {
      put(mins, group * kTileRows + row, float_to_half(min));
    }
  }

  void k_scales(std::size_t super, const RawKScales& raw) const {
    if (dtype == DType::Q6_K) {
      put(supers, super * kTileRows + row, raw.d);
      for (std::size_t i = 0; i < 2 * kSuperGroups; ++i) {
        put(scales, (super * 2 * kSuperGroups + i) * kTileRows + row, raw.scales[i]);
      }
      return;
    }
    put(supers, super * 2 * kTileRows + row, raw.d);
    put(supers,
        (super * 2 + 1) * kTileRows + row,
        static_cast<std::uint16_t>(raw.dmin ^ 0x8000U));  // mins are subtracted
    for (std::size_t i = 0; i < kSuperGroups; ++i) {
      put(scales, (super * kSuperGroups + i) * kTileRows + row, raw.scales[i]);
      put(mins, (super * kSuperGroups + i) * kTileRows + row, raw.mins[i]);
    }
  }
};

// `blocks`: the row in the file.
void pack_quant_row(const RowWriter& writer, const std::byte* blocks, std::size_t cols) {
  const DTypeInfo layout = info(writer.dtype);
  const QuantShape shape = quant_shape(writer.dtype);
  const std::int32_t offset = is_nibbles(writer.dtype) ? 0 : shape.offset;
  std::array<std::uint8_t, 256> codes;
  std::array<float, 16> scales;
  std::array<float, 16> mins;
  for (std::size_t first = 0; first < cols; first += layout.block_elements) {
    decode_block(writer.dtype, blocks, codes.data(), scales.data(), mins.data());
    for (std::size_t i = 0; i < layout.block_elements; ++i) {
      writer.code(first + i, static_cast<std::int32_t>(codes[i]) - offset);
    }
    if (scale_kind(writer.dtype) == ScaleKind::Half) {
      writer.half_scales(first / kGroup, scales[0], mins[0]);
    } else {
      writer.k_scales(first / 256, raw_k_scales(writer.dtype, blocks));
    }
    blocks += layout.block_bytes;
  }
}

// Element (row, k) of a tile in 16-bit fragments: its index among the tile's elements.
std::size_t float_place(std::size_t row, std::size_t k) {
  const std::size_t at_k = k % kStepK;
  const std::size_t fragment = row / 8 + 2 * (at_k / 8);
  const std::size_t lane = row % 8 * 4 + at_k % 8 / 2;
  return ((k / kStepK * kLanes + lane) * 4 + fragment) * 2 + at_k % 2;
}

}  // namespace

std::size_t tiles_of(std::size_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

PackedPlaces packed_places(DType dtype, std::size_t rows, std::size_t cols) {
  const std::size_t tiles = tiles_of(rows);
  PackedPlaces out;
  if (dtype == DType::F32) {
    out.bytes = aligned(rows * cols * sizeof(float));
    return out;
  }
  if (!is_quantised(dtype)) {
    out.bytes = aligned(tiles * kTileRows * padded(cols) * sizeof(std::uint16_t));
    return out;
  }
  const std::size_t groups = cols / kGroup;
  const std::size_t all_scales = aligned(tiles * groups * scale_bytes(dtype));
  out.scales = aligned(tiles * groups * kLanes * (is_nibbles(dtype) ? 8 : 16));
  out.mins = out.scales + all_scales;
  out.supers = out.mins + (quant_shape(dtype).has_min ? all_scales : 0);
  out.bytes = out.supers + aligned(tiles * (groups / kSuperGroups) * super_bytes(dtype));
  return out;
}

void pack_tile(const WeightView& weight, std::size_t tile, std::span<std::byte> out) {
  const PackedPlaces places = packed_places(weight.dtype, weight.rows, weight.cols);
  BATON_CHECK(out.size() == places.bytes, "a packed weight of another size");
  const std::size_t file_row = row_bytes(weight.dtype, weight.cols);
  const std::size_t first = tile * kTileRows;
  const std::size_t count = std::min<std::size_t>(kTileRows, weight.rows - first);
  if (weight.dtype == DType::F32) {
    std::memcpy(
        out.data() + first * file_row, weight.data.data() + first * file_row, count * file_row);
    return;
  }
  if (!is_quantised(weight.dtype)) {
    const std::size_t elements = kTileRows * padded(weight.cols);
    std::byte* const begin = out.data() + tile * elements * sizeof(std::uint16_t);
    std::memset(begin, 0, elements * sizeof(std::uint16_t));
    for (std::size_t row = 0; row < count; ++row) {
      const std::byte* const from = weight.data.data() + (first + row) * file_row;
      for (std::size_t k = 0; k < weight.cols; ++k) {
        std::memcpy(begin + float_place(row, k) * 2, from + k * 2, 2);
      }
    }
    return;
  }
  const std::size_t groups = weight.cols / kGroup;
  const std::size_t code_bytes = groups * kLanes * (is_nibbles(weight.dtype) ? 8 : 16);
  const std::size_t all_scales = groups * scale_bytes(weight.dtype);
  const std::size_t all_supers = groups / kSuperGroups * super_bytes(weight.dtype);
  RowWriter writer{.dtype = weight.dtype,
                   .row = 0,
                   .codes = out.data() + tile * code_bytes,
                   .scales = out.data() + places.scales + tile * all_scales,
                   .mins = out.data() + places.mins + tile * all_scales,
                   .supers = out.data() + places.supers + tile * all_supers};
  std::memset(writer.codes, 0, code_bytes);
  std::memset(writer.scales, 0, all_scales);
  if (quant_shape(weight.dtype).has_min) {
    std::memset(writer.mins, 0, all_scales);
  }
  std::memset(writer.supers, 0, all_supers);
  for (std::size_t row = 0; row < count; ++row) {
    writer.row = row;
    pack_quant_row(writer, weight.data.data() + (first + row) * file_row, weight.cols);
  }
}

PackedPlaces packed_places_e4m3(std::size_t rows, std::size_t cols) {
  PackedPlaces out;
  out.scales = aligned(tiles_of(rows) * kTileRows * padded(cols));
  out.bytes = out.scales + aligned(rows * sizeof(float));
  return out;
}

void pack_tile_e4m3(std::span<const std::byte> codes,
                    std::size_t rows,
                    std::size_t cols,
                    std::size_t tile,
                    std::span<std::byte> out) {
  BATON_CHECK(codes.size() == rows * cols && out.size() == packed_places_e4m3(rows, cols).bytes,
              "a packed FP8 weight of another size");
  const std::size_t elements = kTileRows * padded(cols);
  const std::size_t first = tile * kTileRows;
  std::byte* const begin = out.data() + tile * elements;
  std::memset(begin, 0, elements);
  for (std::size_t row = 0; row < std::min<std::size_t>(kTileRows, rows - first); ++row) {
    for (std::size_t k = 0; k < cols; ++k) {
      begin[float_place(row, k)] = codes[(first + row) * cols + k];
    }
  }
}

QuantMatrix quant_matrix(DType dtype, std::size_t rows, std::size_t cols, const std::byte* base) {
  const PackedPlaces places = packed_places(dtype, rows, cols);
  return {.codes = reinterpret_cast<const std::uint32_t*>(base),
          .scales = reinterpret_cast<const std::uint8_t*>(base + places.scales),
          .mins = reinterpret_cast<const std::uint8_t*>(base + places.mins),
          .supers = reinterpret_cast<const std::uint16_t*>(base + places.supers),
          .rows = static_cast<std::uint32_t>(rows),
          .cols = static_cast<std::uint32_t>(cols)};
}

FloatMatrix float_matrix(std::size_t rows, std::size_t cols, const std::byte* base) {
  return {.words = reinterpret_cast<const std::uint32_t*>(base),
          .scales = nullptr,
          .rows = static_cast<std::uint32_t>(rows),
          .cols = static_cast<std::uint32_t>(cols)};
}

}  // namespace baton::kernels::cuda
