// One layer of a KV arena as kernels see it, and which rows of a step are whose. The arrangement is
// that of common/types/kv_layout.h in the engine's order: keys [kv_head][dim][token], values
// [kv_head][token][dim], then scales.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"

namespace baton::kernels::cuda {

// As KvDType, and BF16.
enum class KvElement : std::uint8_t { Half, Float, Int8, E4m3, Int16, Bfloat };

struct KvPages {
  std::byte* layer = nullptr;             // [block][block_bytes], 16-byte aligned
  const std::uint32_t* tables = nullptr;  // all sequences' block tables, one behind the other
  std::size_t block_bytes = 0;
  std::size_t values_at = 0;  // bytes from a block's beginning
  std::size_t scales_at = 0;
  std::uint32_t block_tokens = 0;  // a multiple of 16
  std::uint32_t kv_heads = 0;      // of the arena
  std::uint32_t head_dim = 0;
  KvElement element = KvElement::Half;
};

constexpr std::size_t element_bytes(KvElement element) {
  return element == KvElement::Float                                ? 4
         : element == KvElement::Int8 || element == KvElement::E4m3 ? 1
                                                                    : 2;
}
constexpr bool has_scales(KvElement element) {
  return element == KvElement::Int8 || element == KvElement::E4m3 || element == KvElement::Int16;
}

// Where a token's row lies.
BATON_DEVICE std::byte* block_of(const KvPages& pages,
                                 std::uint32_t table,
                                 std::uint32_t position) {
  const std::size_t block = pages.tables[table + position / pages.block_tokens];
  return pages.layer + block * pages.block_bytes;
}
// Elements from the beginning of the block's keys, or values, to a head's first.
BATON_DEVICE std::size_t head_at(const KvPages& pages, std::uint32_t kv_head) {
  return std::size_t{kv_head} * pages.head_dim * pages.block_tokens;
}
BATON_DEVICE float* scale_of(const KvPages& pages,
                             std::byte* block,
                             bool is_value,
                             std::uint32_t kv_head,
                             std::uint32_t token) {
  const std::size_t row = (is_value ? pages.kv_heads : 0) + kv_head;
  return reinterpret_cast<float*>(block + pages.scales_at) + row * pages.block_tokens + token;
}

// Of a row that pads a step: its key and value are written nowhere.
inline constexpr std::uint32_t kNowhere = 0xFFFFFFFFU;

// A row of a step: the position of its token and where its sequence's block table begins.
struct RowPlace {
  std::uint32_t position = 0;
  std::uint32_t table = 0;
};

}  // namespace baton::kernels::cuda
