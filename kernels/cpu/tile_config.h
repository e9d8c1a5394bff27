// The 64 bytes that LDTILECFG reads: how many rows of how many bytes each of the eight tile
// registers has. Palette 1 is the only one there is: at most 16 rows of 64 bytes.
//
// Included by instruction-set translation units (no std::, see kernel_table.h).
// Thread: a value. Failure: none.
#pragma once

#include <cstdint>

namespace baton::kernels::cpu {

struct TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

[[maybe_unused]] static inline void set_tile(TileConfig& config,
                                             int tile,
                                             int rows,
                                             int row_bytes) {
  config.rows[tile] = static_cast<std::uint8_t>(rows);
  config.row_bytes[tile] = static_cast<std::uint16_t>(row_bytes);
}

}  // namespace baton::kernels::cpu
