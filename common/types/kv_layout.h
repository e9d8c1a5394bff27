// How keys and values lie in memory. Two nodes may exchange blocks when their layouts are equal, or
// when the sender can convert (`is_convertible`): another block size or element order, never
// another dtype or shape.
//
// An arena is one allocation: [layer][block][block bytes]. A block of one layer is contiguous and
// holds keys, then values, of `block_tokens` tokens, in the engine's order:
//   keys   [kv_head][head_dim][block_tokens]   (a vector lane is a token)
//   values [kv_head][block_tokens][head_dim]   (a vector lane is a dimension)
// so that blocks with neighbouring ids form one contiguous run in each layer. Types of codes (i16,
// i8, f8) have a scale for each head and token, float32, keys and values apart, at the block's end:
//   key scales [kv_head][block_tokens], value scales [kv_head][block_tokens]
// An element is its code times its token's scale; no other token has a part in it. Rows of i8 are
// stored spread by a Hadamard matrix (engine/model/decoder.h).
//
// Thread: plain values. Failure: `validate` says which number is impossible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/base/ids.h"

namespace baton {

enum class KvDType : std::uint8_t {
  F16 = 1,
  F32 = 2,
  I8 = 3,   // whole numbers from -127 to 127, of rows that are spread
  F8 = 4,   // FP8 E4M3: up to 448
  I16 = 5,  // whole numbers from -4095 to 4095: attention multiplies these as they are
};
std::string_view to_string(KvDType dtype);                     // "i16", "f16", "f32", "i8", "f8"
std::optional<KvDType> kv_dtype_named(std::string_view name);  // empty: no such name

// How the elements of a block lie. The engine computes on the first; blocks travel between nodes
// of any two. Scales follow: [kv_head][token], and [token][kv_head] for the third.
enum class KvOrder : std::uint8_t {
  KeysByDimValuesByToken = 1,  // keys [kv_head][dim][token], values [kv_head][token][dim]
  ByHeadAndToken = 2,          // both [kv_head][token][dim]
  ByTokenAndHead = 3,          // both [token][kv_head][dim]
};

struct KvLayout {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_tokens = 32;
  KvDType dtype = KvDType::F16;
  KvOrder order = KvOrder::KeysByDimValuesByToken;

  bool operator==(const KvLayout&) const = default;

  std::size_t element_bytes() const {
    return dtype == KvDType::F32 ? 4 : dtype == KvDType::F16 || dtype == KvDType::I16 ? 2 : 1;
  }
  // Bytes of a scale; 0 for types that have none.
  std::size_t scale_bytes() const {
    return dtype == KvDType::F16 || dtype == KvDType::F32 ? 0 : sizeof(float);
  }
  // Bytes from the beginning of a block of one layer to its scales.
  std::size_t scales_at() const {
    return std::size_t{2} * kv_heads * head_dim * block_tokens * element_bytes();
  }
  // Bytes of one block of one layer, keys and values.
  std::size_t block_bytes() const {
    return scales_at() + std::size_t{2} * kv_heads * block_tokens * scale_bytes();
  }
  // Bytes of one block over all layers.
  std::size_t block_bytes_all_layers() const { return block_bytes() * layers; }
  std::uint32_t blocks_for(std::size_t tokens) const {
    return static_cast<std::uint32_t>((tokens + block_tokens - 1) / block_tokens);
  }
  // Equal on every machine for equal layouts (XXH3 over the fields in order).
  std::uint64_t hash() const;
  // The same for what is stored, however it is arranged: without block_tokens and order.
  std::uint64_t content_hash() const;
  std::string to_string() const;
};

Status validate(const KvLayout& layout);
// The same numbers in another arrangement: blocks of one can be filled from blocks of the other.
bool is_convertible(const KvLayout& a, const KvLayout& b);

// A node's KV memory: shape and place, no ownership. [layers][num_blocks][block_bytes]
struct KvArenaView {
  std::byte* base = nullptr;
  KvLayout layout;
  std::uint32_t num_blocks = 0;

  std::size_t layer_stride() const { return std::size_t{num_blocks} * layout.block_bytes(); }
  std::size_t bytes() const { return layer_stride() * layout.layers; }
  std::byte* block(std::uint32_t layer, BlockId id) const {
    return base + layer * layer_stride() + std::size_t{id.value} * layout.block_bytes();
  }
};

}  // namespace baton
