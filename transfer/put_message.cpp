#include "transfer/put_message.h"

#include "transfer/little_endian.h"

namespace baton::transfer {
namespace {

constexpr std::uint16_t kPutMagic = 0xba71;
constexpr std::uint8_t kPutVersion = 1;

// The fields that a kind does not have are zero.
bool is_consistent(const PutMessage& message) {
  const bool has_writer = message.writer != ProcessIdentity{};
  switch (message.kind) {
    case PutKind::Claim:
    case PutKind::Released:
      return message.bytes == 0;
    case PutKind::Answer:
      return message.bytes <= 1 && !has_writer;
    case PutKind::Done:
      return true;
  }
  return false;
}

}  // namespace

std::string_view to_string(PathKind path) {
  switch (path) {
    case PathKind::Am:
      return "am";
    case PathKind::RdmaPut:
      return "rdma_put";
    case PathKind::ShmPut:
      return "shm_put";
  }
  return "unknown";
}

EncodedPut encode(const PutMessage& message) {
  EncodedPut out;
  std::byte* at = out.data();
  at = put(at, kPutMagic);
  at = put(at, kPutVersion);
  at = put(at, static_cast<std::uint8_t>(message.kind));
  at = put(at, static_cast<std::uint8_t>(message.path));
  at = put(at, static_cast<std::uint8_t>(message.lane));
  at = put(at, std::uint16_t{0});
  at = put(at, message.epoch.value);
  at = put(at, message.writer.pid);
  at = put(at, message.lease.high);
  at = put(at, message.lease.low);
  at = put(at, message.writer.host);
  at = put(at, message.writer.start);
  put(at, message.bytes);
  return out;
}

Status decode(std::span<const std::byte> bytes, PutMessage& out) {
  if (bytes.size() != kPutMessageBytes) {
    return fail(ErrorCode::ProtocolError, "put message: wrong length");
  }
  const std::byte* at = bytes.data();
  if (take<std::uint16_t>(at) != kPutMagic || take<std::uint8_t>(at) != kPutVersion) {
    return fail(ErrorCode::ProtocolError, "put message: wrong magic number or version");
  }
  const auto kind = take<std::uint8_t>(at);
  const auto path = take<std::uint8_t>(at);
  const auto lane = take<std::uint8_t>(at);
  if (kind < static_cast<std::uint8_t>(PutKind::Claim) ||
      kind > static_cast<std::uint8_t>(PutKind::Released) || path == 0 || path >= kPathKinds ||
      lane >= kLaneCount || take<std::uint16_t>(at) != 0) {
    return fail(ErrorCode::ProtocolError, "put message: unknown kind, path or lane");
  }
  out.kind = static_cast<PutKind>(kind);
  out.path = static_cast<PathKind>(path);
  out.lane = static_cast<Lane>(lane);
  out.epoch = Epoch{take<std::uint32_t>(at)};
  out.writer.pid = take<std::uint32_t>(at);
  out.lease.high = take<std::uint64_t>(at);
  out.lease.low = take<std::uint64_t>(at);
  out.writer.host = take<std::uint64_t>(at);
  out.writer.start = take<std::uint64_t>(at);
  out.bytes = take<std::uint64_t>(at);
  if (!is_consistent(out)) {
    return fail(ErrorCode::ProtocolError, "put message: a field that its kind does not have");
  }
  return {};
}

}  // namespace baton::transfer
