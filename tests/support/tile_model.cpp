#include "tests/support/tile_model.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace baton::kernels::testing {
namespace {

constexpr std::uint32_t kSign = 0x80000000U;

float flush(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL
             ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & kSign)
             : x;
}

float widen(const std::uint8_t* p) {
  std::uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

std::int32_t byte_at(const std::uint8_t* p, bool is_signed) {
  return is_signed ? static_cast<std::int8_t>(*p) : *p;
}

}  // namespace

float tile_fma(float a, float b, float c) {
  return flush(std::fma(flush(a), flush(b), flush(c)));
}

float tile_add(float a, float b) {
  return flush(flush(a) + flush(b));
}

const char* TileMachine::configure(const cpu::TileConfig& config) {
  if (config.palette == 0) {
    release();
    return nullptr;
  }
  if (config.palette != 1) {
    return "an unknown palette";
  }
  for (const std::uint8_t byte : config.reserved) {
    if (byte != 0) {
      return "reserved bytes are set";
    }
  }
  for (int i = 0; i < 16; ++i) {
    if (i >= 8 && (config.rows[i] != 0 || config.row_bytes[i] != 0)) {
      return "a tile beyond the eighth";
    }
    if (config.rows[i] > 16 || config.row_bytes[i] > 64) {
      return "a tile larger than 16 rows of 64 bytes";
    }
    if ((config.rows[i] == 0) != (config.row_bytes[i] == 0)) {
      return "a tile with rows or bytes, not both";
    }
  }
  release();  // loading a configuration zeroes all tiles
  configured_ = true;
  for (int i = 0; i < 8; ++i) {
    tiles_[i].rows = config.rows[i];
    tiles_[i].row_bytes = config.row_bytes[i];
  }
  return nullptr;
}

const char* TileMachine::check(int tile) const {
  if (!configured_) {
    return "tiles are not configured";
  }
  return tiles_[tile].rows == 0 ? "a tile that is not configured" : nullptr;
}

const char* TileMachine::zero(int tile) {
  if (const char* fault = check(tile); fault != nullptr) {
    return fault;
  }
  std::memset(tiles_[tile].data, 0, sizeof(tiles_[tile].data));
  return nullptr;
}

const char* TileMachine::load(int tile, const void* p, std::size_t stride) {
  if (const char* fault = zero(tile); fault != nullptr) {
    return fault;
  }
  Tile& to = tiles_[tile];
  for (int r = 0; r < to.rows; ++r) {
    std::memcpy(to.data[r],
                static_cast<const std::uint8_t*>(p) + static_cast<std::size_t>(r) * stride,
                static_cast<std::size_t>(to.row_bytes));
  }
  return nullptr;
}

const char* TileMachine::store(int tile, void* p, std::size_t stride) const {
  if (const char* fault = check(tile); fault != nullptr) {
    return fault;
  }
  const Tile& from = tiles_[tile];
  for (int r = 0; r < from.rows; ++r) {
    std::memcpy(static_cast<std::uint8_t*>(p) + static_cast<std::size_t>(r) * stride,
                from.data[r],
                static_cast<std::size_t>(from.row_bytes));
  }
  return nullptr;
}

const char* TileMachine::check_product(int to, int a, int b) const {
  for (const int tile : {to, a, b}) {
    if (const char* fault = check(tile); fault != nullptr) {
      return fault;
    }
    if (tiles_[tile].row_bytes % 4 != 0) {
      return "a row that is not of whole 32-bit words";
    }
  }
  if (to == a || to == b || a == b) {
    return "one tile twice in a product";
  }
  if (tiles_[to].rows != tiles_[a].rows) {
    return "result and first factor differ in rows";
  }
  if (tiles_[to].row_bytes != tiles_[b].row_bytes) {
    return "result and second factor differ in columns";
  }
  return tiles_[a].row_bytes / 4 != tiles_[b].rows ? "the factors' inner sizes differ" : nullptr;
}

const char* TileMachine::multiply_bytes(int to, int a, int b, bool a_signed, bool b_signed) {
  if (const char* fault = check_product(to, a, b); fault != nullptr) {
    return fault;
  }
  const int columns = tiles_[to].row_bytes / 4;
  for (int m = 0; m < tiles_[to].rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      std::uint32_t sum;
      std::memcpy(&sum, tiles_[to].data[m] + 4 * n, sizeof(sum));
      for (int k = 0; k < tiles_[b].rows; ++k) {
        for (int i = 0; i < 4; ++i) {
          const std::int32_t product = byte_at(tiles_[a].data[m] + 4 * k + i, a_signed) *
                                       byte_at(tiles_[b].data[k] + 4 * n + i, b_signed);
          sum += static_cast<std::uint32_t>(product);
        }
      }
      std::memcpy(tiles_[to].data[m] + 4 * n, &sum, sizeof(sum));
    }
  }
  return nullptr;
}

const char* TileMachine::multiply_bfloats(int to, int a, int b) {
  if (const char* fault = check_product(to, a, b); fault != nullptr) {
    return fault;
  }
  const int columns = tiles_[to].row_bytes / 4;
  for (int m = 0; m < tiles_[to].rows; ++m) {
    for (int n = 0; n < columns; ++n) {
      float even = 0.0F;
      float odd = 0.0F;
      for (int k = 0; k < tiles_[b].rows; ++k) {
        const std::uint8_t* left = tiles_[a].data[m] + 4 * k;
        const std::uint8_t* right = tiles_[b].data[k] + 4 * n;
        even = tile_fma(widen(left), widen(right), even);
        odd = tile_fma(widen(left + 2), widen(right + 2), odd);
      }
      float total;
      std::memcpy(&total, tiles_[to].data[m] + 4 * n, sizeof(total));
      total = tile_add(total, tile_add(even, odd));
      std::memcpy(tiles_[to].data[m] + 4 * n, &total, sizeof(total));
    }
  }
  return nullptr;
}

}  // namespace baton::kernels::testing
