// What a writer that puts says, and what a receiver offers to it: what decodes encodes to the same
// bytes again, and no place lies outside of the offered arena.
#pragma once

#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "transfer/put_message.h"
#include "transfer/put_offer.h"

namespace baton::fuzz {

struct PutMessageFuzz {
  static constexpr std::string_view kName = "put_message";

  static void run(std::span<const std::uint8_t> bytes) {
    const auto raw = std::as_bytes(bytes);
    transfer::PutMessage message;
    if (const Status decoded = transfer::decode(raw, message); decoded) {
      fuzz_check(std::ranges::equal(transfer::encode(message), raw));
    } else {
      fuzz_check(decoded.error().code == ErrorCode::ProtocolError);
    }
    const auto offer = transfer::decode_offer(raw);
    if (!offer) {
      fuzz_check(offer.error().code == ErrorCode::ProtocolError);
      return;
    }
    fuzz_check(std::ranges::equal(transfer::encode(*offer), raw));
    if (offer->is_empty()) {
      return;
    }
    for (const std::uint32_t layer : {0U, offer->layers - 1, offer->layers}) {
      for (const std::uint32_t first : {0U, offer->num_blocks - 1, offer->num_blocks}) {
        for (const std::uint32_t count : {0U, 1U, offer->num_blocks, ~0U}) {
          const auto place = offer->offset_of(layer, {BlockId{first}, count});
          fuzz_check(!place || *place + count * offer->block_bytes <= offer->arena_bytes());
        }
      }
    }
  }

  static std::vector<std::string> seeds() {
    transfer::PutMessage message;
    message.kind = transfer::PutKind::Done;
    message.path = transfer::PathKind::ShmPut;
    message.lane = transfer::Lane::Shm;
    message.epoch = Epoch{2};
    message.lease = LeaseId{5, 6};
    message.writer = {7, 8, 9};
    message.bytes = 4096;
    transfer::PutOffer offer;
    offer.allows_rdma = true;
    offer.base = 0x7f0000000000;
    offer.block_bytes = 4096;
    offer.layers = 3;
    offer.num_blocks = 64;
    offer.key.assign(9, std::byte{1});
    transfer::PutOffer both = offer;
    both.allows_shm = true;
    both.descriptor = 11;
    both.inode = 12;
    both.mapped_bytes = offer.arena_bytes();
    return {text(transfer::encode(message)),
            text(transfer::encode(offer)),
            text(transfer::encode(both))};
  }

 private:
  static std::string text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

}  // namespace baton::fuzz
