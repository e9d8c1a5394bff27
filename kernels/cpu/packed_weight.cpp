#include "kernels/cpu/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/weight_codecs.h"
#include "kernels/gguf_blocks.h"
#include "kernels/half.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kMaxBlock = 256;

bool has_fifth_bits(DType type) {
  return type == DType::Q5_0 || type == DType::Q5_1 || type == DType::Q5_K;
}

// Writes the 32 codes of feature `lane` of a panel into a record.
void write_codes(DType type, const std::uint8_t* codes, std::size_t lane, std::uint8_t* record) {
  const std::size_t g = lane / kLanes;
  const std::size_t i = lane % kLanes;
  if (type == DType::Q8_0) {
    for (std::size_t step = 0; step < 8; ++step) {
      std::memcpy(record + (step * 2 + g) * 64 + 4 * i, codes + 4 * step, 4);
    }
    return;
  }
  for (std::size_t pair = 0; pair < 4; ++pair) {
    std::uint8_t* out = record + (pair * 2 + g) * 64 + 4 * i;
    for (std::size_t b = 0; b < 4; ++b) {
      const unsigned low = codes[8 * pair + b] & 0xFU;
      const unsigned high = codes[8 * pair + 4 + b] & 0xFU;
      out[b] = static_cast<std::uint8_t>(low | (high << 4));
    }
  }
  std::uint8_t* extra = record + panel_layout(type).extra_at;
  if (has_fifth_bits(type)) {
    for (std::size_t step = 0; step < 8; ++step) {
      for (std::size_t b = 0; b < 4; ++b) {
        const std::size_t bit = 4 * i + b;
        const unsigned fifth = (codes[4 * step + b] >> 4) & 1U;
        std::uint8_t& byte = extra[(step * 2 + g) * 8 + bit / 8];
        byte = static_cast<std::uint8_t>(byte | (fifth << (bit % 8)));
      }
    }
  } else if (type == DType::Q6_K) {
    for (std::size_t step = 0; step < 8; ++step) {
      std::uint8_t* out = extra + ((step / 4) * 2 + g) * 64 + 4 * i;
      for (std::size_t b = 0; b < 4; ++b) {
        const unsigned top = (codes[4 * step + b] >> 4) & 3U;
        out[b] = static_cast<std::uint8_t>(out[b] | (top << (2 * (step % 4))));
      }
    }
  }
}

// The code of element k of feature `lane`.
unsigned read_code(DType type, const std::uint8_t* record, std::size_t lane, std::size_t k) {
  const std::size_t g = lane / kLanes;
  const std::size_t i = lane % kLanes;
  const std::size_t step = k / 4;
  const std::size_t byte = 4 * i + k % 4;
  if (type == DType::Q8_0) {
    return record[(step * 2 + g) * 64 + byte];
  }
  unsigned code = record[((step / 2) * 2 + g) * 64 + byte];
  code = step % 2 == 0 ? code & 0xFU : code >> 4;
  const std::uint8_t* extra = record + panel_layout(type).extra_at;
  if (has_fifth_bits(type)) {
    code |= ((extra[(step * 2 + g) * 8 + byte / 8] >> (byte % 8)) & 1U) << 4;
  } else if (type == DType::Q6_K) {
    code |= ((extra[((step / 4) * 2 + g) * 64 + byte] >> (2 * (step % 4))) & 3U) << 4;
  }
  return code;
}

void put_u16(std::uint8_t* table, std::size_t i, std::uint16_t value) {
  std::memcpy(table + 2 * i, &value, sizeof(value));
}

float half_in(const std::uint8_t* table, std::size_t i) {
  std::uint16_t value;
  std::memcpy(&value, table + 2 * i, sizeof(value));
  return half_to_float(value);
}

struct ScaleMin {
  float scale;
  float min;
};
ScaleMin read_scale(DType type,
                    const std::uint8_t* header,
                    const std::uint8_t* record,
                    std::size_t lane,
                    std::size_t part) {
  const PanelLayout layout = panel_layout(type);
  const std::uint8_t* scales = record + layout.scale_at;
  if (layout.header_bytes == 0) {
    return {half_in(scales, lane), layout.min_at != 0 ? half_in(record + layout.min_at, lane) : 0};
  }
  if (type == DType::Q6_K) {
    const auto scale = static_cast<std::int8_t>(scales[part * kPanelRows + lane]);
    return {half_in(header, lane) * static_cast<float>(scale), 0};
  }
  return {half_in(header, lane) * static_cast<float>(scales[lane]),
          half_in(header + 64, lane) * static_cast<float>(record[layout.min_at + lane])};
}

}  // namespace

CpuMatrix::CpuMatrix(
    DType dtype, std::size_t rows, std::size_t cols, std::shared_ptr<std::byte> memory, bool pairs)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      pairs_(pairs && dtype == DType::BF16),
      panel_bytes_(panel_bytes(dtype, cols, pairs)),
      memory_(std::move(memory)) {}

std::size_t CpuMatrix::panels() const {
  return (rows_ + kPanelRows - 1) / kPanelRows;
}

std::size_t CpuMatrix::panel_bytes(DType dtype, std::size_t cols, bool pairs) {
  if (pairs && dtype == DType::BF16) {
    return pairs_of(cols) * kPanelRows * sizeof(std::uint32_t);
  }
  if (!is_quantised(dtype)) {
    return cols * kPanelRows * info(dtype).block_bytes;
  }
  const PanelLayout layout = panel_layout(dtype);
  const std::size_t records = cols / kQuantBlock;
  return records * layout.record_bytes + records / layout.header_blocks * layout.header_bytes;
}

void CpuMatrix::pack_panel(const WeightView& weight, std::size_t panel) {
  const std::size_t first = panel * kPanelRows;
  const std::size_t count = std::min(kPanelRows, rows_ - first);
  std::byte* out = memory_.get() + panel * panel_bytes_;
  if (is_quantised(dtype_)) {
    pack_quant_panel(weight, first, count, out);
  } else if (pairs_) {
    pack_pair_panel(weight, first, count, out);
  } else {
    pack_float_panel(weight, first, count, out);
  }
}

void CpuMatrix::pack_float_panel(const WeightView& weight,
                                 std::size_t first_row,
                                 std::size_t count,
                                 std::byte* out) const {
  const std::size_t element = info(dtype_).block_bytes;
  for (std::size_t lane = 0; lane < count; ++lane) {
    const std::byte* in = weight.data.data() + (first_row + lane) * cols_ * element;
    for (std::size_t k = 0; k < cols_; ++k) {
      std::memcpy(out + (k * kPanelRows + lane) * element, in + k * element, element);
    }
  }
}

void CpuMatrix::pack_pair_panel(const WeightView& weight,
                                std::size_t first_row,
                                std::size_t count,
                                std::byte* out) const {
  constexpr std::size_t kElement = sizeof(std::uint16_t);
  for (std::size_t lane = 0; lane < count; ++lane) {
    const std::byte* in = weight.data.data() + (first_row + lane) * cols_ * kElement;
    for (std::size_t k = 0; k < cols_; k += 2) {
      std::memcpy(out + (k / 2 * kPanelRows + lane) * 2 * kElement,
                  in + k * kElement,
                  std::min<std::size_t>(2, cols_ - k) * kElement);
    }
  }
}

void CpuMatrix::pack_quant_panel(const WeightView& weight,
                                 std::size_t first_row,
                                 std::size_t count,
                                 std::byte* out) const {
  const DTypeInfo file = info(dtype_);
  const PanelLayout layout = panel_layout(dtype_);
  const std::size_t row_size = row_bytes(dtype_, cols_);
  const std::size_t records = file.block_elements / kQuantBlock;  // a file block
  std::array<std::uint8_t, kMaxBlock> codes;
  std::array<float, 16> scales;
  std::array<float, 16> mins;
  auto* at = reinterpret_cast<std::uint8_t*>(out);
  for (std::size_t block = 0; block < cols_ / file.block_elements; ++block) {
    std::uint8_t* header = at;
    for (std::size_t lane = 0; lane < count; ++lane) {
      const std::byte* in =
          weight.data.data() + (first_row + lane) * row_size + block * file.block_bytes;
      decode_block(dtype_, in, codes.data(), scales.data(), mins.data());
      RawKScales raw;
      if (layout.header_bytes != 0) {
        raw = raw_k_scales(dtype_, in);
        put_u16(header, lane, raw.d);
        if (dtype_ != DType::Q6_K) {
          put_u16(header + 64, lane, raw.dmin ^ 0x8000);  // the min is subtracted
        }
      }
      for (std::size_t r = 0; r < records; ++r) {
        std::uint8_t* record = at + layout.header_bytes + r * layout.record_bytes;
        write_codes(dtype_, codes.data() + r * kQuantBlock, lane, record);
        std::uint8_t* scale_table = record + layout.scale_at;
        if (dtype_ == DType::Q6_K) {
          scale_table[lane] = raw.scales[2 * r];
          scale_table[kPanelRows + lane] = raw.scales[2 * r + 1];
        } else if (layout.header_bytes != 0) {
          scale_table[lane] = raw.scales[r];
          record[layout.min_at + lane] = raw.mins[r];
        } else {
          put_u16(scale_table, lane, float_to_half(scales[r]));
          if (layout.min_at != 0) {
            put_u16(record + layout.min_at, lane, float_to_half(mins[r]));
          }
        }
      }
    }
    at += layout.header_bytes + records * layout.record_bytes;
  }
}

void CpuMatrix::read_row(std::size_t row, float scale, float* out) const {
  const auto* panel =
      reinterpret_cast<const std::uint8_t*>(data()) + row / kPanelRows * panel_bytes_;
  const std::size_t lane = row % kPanelRows;
  if (!is_quantised(dtype_)) {
    const std::size_t element = info(dtype_).block_bytes;
    for (std::size_t k = 0; k < cols_; ++k) {
      const std::size_t at =
          pairs_ ? (k / 2 * kPanelRows + lane) * 2 + k % 2 : k * kPanelRows + lane;
      float value;
      dequantise_row(dtype_, reinterpret_cast<const std::byte*>(panel + at * element), 1, &value);
      out[k] = value * scale;
    }
    return;
  }
  const PanelLayout layout = panel_layout(dtype_);
  const QuantShape shape = quant_shape(dtype_);
  const std::uint8_t* header = panel;
  const std::uint8_t* record = panel;
  for (std::size_t block = 0; block < cols_ / kQuantBlock; ++block) {
    if (layout.header_bytes != 0 && block % layout.header_blocks == 0) {
      header = record;
      record += layout.header_bytes;
    }
    for (std::size_t k = 0; k < kQuantBlock; k += shape.group) {
      const ScaleMin group = read_scale(dtype_, header, record, lane, k / shape.group);
      for (std::size_t j = k; j < k + shape.group; ++j) {
        const int code = static_cast<int>(read_code(dtype_, record, lane, j)) - shape.offset;
        out[block * kQuantBlock + j] = (group.scale * static_cast<float>(code) + group.min) * scale;
      }
    }
    record += layout.record_bytes;
  }
}

}  // namespace baton::kernels::cpu
