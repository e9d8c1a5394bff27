// What a receiver offers to writers that put: where its arena lies and by which paths it may be
// written. It travels behind UCX's address in an inlet's address; an empty one means active
// messages only. Its codec takes foreign bytes.
//
// Wire, little endian: u32 magic, u16 version, u16 paths, u64 base, u64 block bytes, u32 layers,
// u32 blocks, u32 descriptor, u32 key bytes, u64 device, u64 inode, u64 mapped bytes, then the key.
//
// Thread: plain values. Failure: decode gives ProtocolError for anything that encode cannot have
// made, a remote place outside the arena is no place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_layout.h"
#include "transfer/put_message.h"

namespace baton::transfer {

struct PutOffer {
  bool allows_rdma = false;
  bool allows_shm = false;
  std::uint64_t base = 0;  // address of the arena in the receiver's process
  std::uint64_t block_bytes = 0;
  std::uint32_t layers = 0;
  std::uint32_t num_blocks = 0;
  // Of the shared arena: a descriptor of the receiver's process, and the file behind it.
  std::uint32_t descriptor = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t mapped_bytes = 0;
  std::vector<std::byte> key;  // UCX's packed rkey, for rdma

  bool is_empty() const { return !allows_rdma && !allows_shm; }
  std::uint64_t arena_bytes() const { return block_bytes * layers * num_blocks; }
  // The arena has blocks like those of `layout`: a copy of a block here is a block there.
  bool fits(const KvLayout& layout) const {
    return layout.block_bytes() == block_bytes && layout.layers == layers;
  }
  // Offset in the arena of `count` neighbouring blocks; nothing when it does not hold them.
  std::optional<std::uint64_t> offset_of(std::uint32_t layer, BlockRun run) const;
};

constexpr std::size_t kMaxKeyBytes = 4096;

// Empty for an empty offer.
std::vector<std::byte> encode(const PutOffer& offer);
Result<PutOffer> decode_offer(std::span<const std::byte> bytes);

}  // namespace baton::transfer
