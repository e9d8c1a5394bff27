// The header of a data message between nodes: what decodes encodes to the same bytes again.
#pragma once

#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "transfer/message.h"

namespace baton::fuzz {

struct MessageHeaderFuzz {
  static constexpr std::string_view kName = "message_header";

  static void run(std::span<const std::uint8_t> bytes) {
    transfer::MessageHeader header;
    const auto raw = std::as_bytes(bytes);
    const Status decoded = transfer::decode(raw, header);
    if (!decoded) {
      fuzz_check(decoded.error().code == ErrorCode::ProtocolError);
      return;
    }
    fuzz_check(header.num_runs <= transfer::kMaxRuns);
    transfer::EncodedHeader again;
    transfer::encode(header, again);
    fuzz_check(std::ranges::equal(again.span(), raw));
  }

  static std::vector<std::string> seeds() {
    std::vector<std::string> made;
    for (const std::uint32_t runs : {1U, 3U, 64U}) {
      transfer::MessageHeader header;
      header.lease = LeaseId{5, 6};
      header.epoch = Epoch{2};
      header.layer = 3;
      header.lane = transfer::Lane::Tcp;
      for (std::uint32_t i = 0; i < runs; ++i) {
        header.add_run(BlockRun{BlockId{i * 10}, i + 1});
      }
      transfer::EncodedHeader encoded;
      transfer::encode(header, encoded);
      made.emplace_back(reinterpret_cast<const char*>(encoded.bytes.data()), encoded.size);
    }
    return made;
  }
};

}  // namespace baton::fuzz
