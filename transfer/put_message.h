// What a writer that puts tells the receiver, who does not see its bytes arrive, and its checked
// codec. All travel on the data connection, in order:
//   writer   Claim     it will put into the lease; it puts nothing before the answer
//   receiver Answer    accepted, or refused: the lease is over, or nothing could prove its end
//   writer   Done      every put is flushed: `bytes` bytes are there; the claim is over
//   writer   Released  every put is flushed or was never posted, no more will come; no commit
//
// Wire, little endian: u16 magic, u8 version, u8 kind, u8 path, u8 lane, u16 zero, u32 epoch,
// u32 pid, u64 lease high, u64 lease low, u64 host, u64 start, u64 bytes.
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
#include "transfer/message.h"
#include "transfer/process_watch.h"

namespace baton::transfer {

// How the bytes of a send travel.
enum class PathKind : std::uint8_t {
  Am = 0,       // active messages that the receiver checks
  RdmaPut = 1,  // one-sided writes by the network device
  ShmPut = 2,   // copies into the receiver's mapped arena
};
constexpr std::uint8_t kPathKinds = 3;
std::string_view to_string(PathKind path);

enum class PutKind : std::uint8_t { Claim = 1, Answer = 2, Done = 3, Released = 4 };

struct PutMessage {
  PutKind kind = PutKind::Claim;
  PathKind path = PathKind::RdmaPut;
  Lane lane = Lane::Unknown;
  Epoch epoch{};
  LeaseId lease;
  ProcessIdentity writer;   // zero in an Answer
  std::uint64_t bytes = 0;  // Done: put and flushed; Answer: 1 accepted, 0 refused; else 0
};

constexpr std::size_t kPutMessageBytes = 56;
using EncodedPut = std::array<std::byte, kPutMessageBytes>;

EncodedPut encode(const PutMessage& message);
Status decode(std::span<const std::byte> bytes, PutMessage& out);

}  // namespace baton::transfer
