// Writes keys and values of new tokens into the arena, rounded to its element: a warp for each
// token, head, and key or value. Codes are those of kernels/kv_codes.h.
//
// Thread: a kernel's. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_pages.h"
#include "kernels/kv_codes.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kKvWriteThreads = 128;

struct KvWriteArgs {
  KvPages pages;
  const RowPlace* rows = nullptr;  // [num_rows]
  const float* keys = nullptr;     // [num_rows][stride], heads at h * head_dim
  const float* values = nullptr;
  std::size_t stride = 0;
  std::uint32_t num_rows = 0;
  std::uint32_t first_kv_head = 0;  // of the arena's
  std::uint32_t kv_heads = 0;       // written
};

inline LaunchShape kv_write_shape(const KvWriteArgs& args) {
  constexpr unsigned kWarps = kKvWriteThreads / kWarp;
  return {.x = (args.num_rows + kWarps - 1) / kWarps,
          .y = args.kv_heads,
          .z = 2,
          .threads = kKvWriteThreads};
}

// What a row's scale and codes come from.
struct RowCoding {
  float factor;
  float scale;
};
BATON_DEVICE RowCoding row_coding(KvElement element, const float* x, std::uint32_t dim) {
  const float most = element == KvElement::Int8    ? kLargestInt8
                     : element == KvElement::Int16 ? kLargestInt16
                                                   : kLargestE4m3;
  std::uint32_t top = 0;  // as bits, so that a NaN is the largest of all
  for (unsigned d = lane_index(); d < dim; d += kWarp) {
    const std::uint32_t magnitude = bits_of(x[d]) & 0x7FFFFFFFU;
    top = magnitude > top ? magnitude : top;
  }
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    const std::uint32_t other = shuffle_xor(top, step);
    top = other > top ? other : top;
  }
  return {code_factor(float_of(top), most), code_scale(float_of(top), most)};
}

BATON_DEVICE void store_element(KvElement element, std::byte* to, float x, float factor) {
  switch (element) {
    case KvElement::Half:
      *reinterpret_cast<std::uint16_t*>(to) = half_of(x);
      return;
    case KvElement::Bfloat:
      *reinterpret_cast<std::uint16_t*>(to) = bfloat_of(x);
      return;
    case KvElement::Float:
      *reinterpret_cast<float*>(to) = x;
      return;
    case KvElement::Int8:
      *reinterpret_cast<std::int8_t*>(to) = whole_code<std::int8_t>(x, factor);
      return;
    case KvElement::Int16:
      *reinterpret_cast<std::int16_t*>(to) = whole_code<std::int16_t>(x, factor);
      return;
    case KvElement::E4m3:
      *reinterpret_cast<std::uint8_t*>(to) = float_to_e4m3(x * factor);
      return;
  }
}

[[maybe_unused]] static BATON_KERNEL(kKvWriteThreads) write_kv(KvWriteArgs args) {
  const KvPages& pages = args.pages;
  const unsigned row = block_index() * (kKvWriteThreads / kWarp) + warp_index();
  if (row >= args.num_rows || args.rows[row].position == kNowhere) {
    return;
  }
  const bool is_value = block_index_z() == 1;
  const std::uint32_t head = args.first_kv_head + block_index_y();
  const std::uint32_t token = args.rows[row].position % pages.block_tokens;
  const float* const x = (is_value ? args.values : args.keys) + row * args.stride +
                         std::size_t{block_index_y()} * pages.head_dim;
  std::byte* const block = block_of(pages, args.rows[row].table, args.rows[row].position);
  const std::size_t bytes = element_bytes(pages.element);
  // A key's elements are a block's tokens apart.
  const std::size_t step = bytes * (is_value ? 1 : pages.block_tokens);
  const std::size_t first = std::size_t{token} * (is_value ? pages.head_dim : 1);
  std::byte* const to =
      block + (is_value ? pages.values_at : 0) + (head_at(pages, head) + first) * bytes;
  RowCoding coding{};
  if (has_scales(pages.element)) {
    coding = row_coding(pages.element, x, pages.head_dim);
    if (lane_index() == 0) {
      *scale_of(pages, block, is_value, head, token) = coding.scale;
    }
  }
  for (unsigned d = lane_index(); d < pages.head_dim; d += kWarp) {
    store_element(pages.element, to + d * step, x[d], coding.factor);
  }
}

}  // namespace baton::kernels::cuda
