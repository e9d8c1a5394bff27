#include "transfer/message.h"

#include "common/base/check.h"
#include "transfer/little_endian.h"

namespace baton::transfer {
namespace {

constexpr std::uint16_t kMessageMagic = 0xba70;
constexpr std::uint8_t kMessageVersion = 1;

}  // namespace

std::string_view to_string(Lane lane) {
  switch (lane) {
    case Lane::Unknown:
      return "unknown";
    case Lane::Tcp:
      return "tcp";
    case Lane::Shm:
      return "shm";
    case Lane::Rc:
      return "rc_verbs";
    case Lane::Dc:
      return "dc";
    case Lane::Ud:
      return "ud_verbs";
    case Lane::Self:
      return "self";
    case Lane::RcMlx5:
      return "rc_mlx5";
  }
  return "unknown";
}

std::uint64_t MessageHeader::num_blocks() const {
  std::uint64_t total = 0;
  for (const BlockRun& one : runs()) {
    total += one.count;
  }
  return total;
}

void MessageHeader::add_run(BlockRun more) {
  BATON_CHECK(num_runs < kMaxRuns, "a message has at most 64 runs");
  run[num_runs++] = more;
}

void encode(const MessageHeader& header, EncodedHeader& out) {
  std::byte* at = out.bytes.data();
  at = put(at, kMessageMagic);
  at = put(at, kMessageVersion);
  at = put(at, static_cast<std::uint8_t>(header.lane));
  at = put(at, header.epoch.value);
  at = put(at, header.lease.high);
  at = put(at, header.lease.low);
  at = put(at, header.layer);
  at = put(at, header.num_runs);
  at = put(at, std::uint16_t{0});
  for (const BlockRun& one : header.runs()) {
    at = put(at, one.first.value);
    at = put(at, one.count);
  }
  out.size = static_cast<std::size_t>(at - out.bytes.data());
}

Status decode(std::span<const std::byte> bytes, MessageHeader& out) {
  if (bytes.size() < kHeaderFixedBytes) {
    return fail(ErrorCode::ProtocolError, "data message: header is too short");
  }
  const std::byte* at = bytes.data();
  if (take<std::uint16_t>(at) != kMessageMagic) {
    return fail(ErrorCode::ProtocolError, "data message: wrong magic number");
  }
  if (take<std::uint8_t>(at) != kMessageVersion) {
    return fail(ErrorCode::ProtocolError, "data message: unknown version");
  }
  const auto lane = take<std::uint8_t>(at);
  if (lane >= kLaneCount) {
    return fail(ErrorCode::ProtocolError, "data message: unknown lane");
  }
  out.lane = static_cast<Lane>(lane);
  out.epoch = Epoch{take<std::uint32_t>(at)};
  out.lease.high = take<std::uint64_t>(at);
  out.lease.low = take<std::uint64_t>(at);
  out.layer = take<std::uint32_t>(at);
  out.num_runs = take<std::uint16_t>(at);
  if (take<std::uint16_t>(at) != 0) {
    return fail(ErrorCode::ProtocolError, "data message: reserved field is not zero");
  }
  if (out.num_runs == 0 || out.num_runs > kMaxRuns ||
      bytes.size() != kHeaderFixedBytes + std::size_t{out.num_runs} * 8) {
    return fail(ErrorCode::ProtocolError, "data message: number of runs does not fit its header");
  }
  for (std::size_t i = 0; i < out.num_runs; ++i) {
    out.run[i].first = BlockId{take<std::uint32_t>(at)};
    out.run[i].count = take<std::uint32_t>(at);
  }
  return {};
}

}  // namespace baton::transfer
