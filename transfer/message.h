// The header that travels before the bytes of every data message, and its checked codec. A message
// carries whole blocks of one layer of one lease: one or more runs of the receiver's block ids,
// then the blocks' bytes in the same order.
//
// Wire, little endian: u16 magic, u8 version, u8 lane, u32 epoch, u64 lease high, u64 lease low,
// u32 layer, u16 runs, u16 zero, then for each run u32 first block, u32 count.
//
// Thread: plain values. Failure: decode gives ProtocolError for anything that encode cannot have
// made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_grant.h"

namespace baton::transfer {

// What really carries the bytes, as the sender's endpoint reports it.
enum class Lane : std::uint8_t {
  Unknown = 0,
  Tcp = 1,
  Shm = 2,
  Rc = 3,  // rc_verbs
  Dc = 4,
  Ud = 5,
  Self = 6,
  RcMlx5 = 7,
};
constexpr std::uint8_t kLaneCount = 8;
std::string_view to_string(Lane lane);

constexpr std::size_t kMaxRuns = 64;
constexpr std::size_t kHeaderFixedBytes = 32;
constexpr std::size_t kMaxHeaderBytes = kHeaderFixedBytes + kMaxRuns * 8;

struct MessageHeader {
  LeaseId lease;
  Epoch epoch{};
  std::uint32_t layer = 0;
  Lane lane = Lane::Unknown;
  std::uint16_t num_runs = 0;
  std::array<BlockRun, kMaxRuns> run{};  // the first num_runs are set

  std::span<const BlockRun> runs() const { return {run.data(), num_runs}; }
  std::uint64_t num_blocks() const;
  // REQUIRES: fewer than kMaxRuns runs.
  void add_run(BlockRun more);
};

// Encoded form; `size` bytes of `bytes` are set.
struct EncodedHeader {
  std::array<std::byte, kMaxHeaderBytes> bytes;
  std::size_t size = 0;
  std::span<const std::byte> span() const { return {bytes.data(), size}; }
};

void encode(const MessageHeader& header, EncodedHeader& out);
Status decode(std::span<const std::byte> bytes, MessageHeader& out);

}  // namespace baton::transfer
