#include "transfer/put_offer.h"

#include <limits>

#include "common/base/check.h"
#include "transfer/little_endian.h"

namespace baton::transfer {
namespace {

constexpr std::uint32_t kOfferMagic = 0x4f505442;  // "BTPO"
constexpr std::uint16_t kOfferVersion = 1;
constexpr std::uint16_t kAllowsRdma = 1;
constexpr std::uint16_t kAllowsShm = 2;
constexpr std::size_t kFixedBytes = 64;

Status malformed(const char* why) {
  return fail(ErrorCode::ProtocolError, std::string("an offer to put: ") + why);
}

// The arena lies in the address space, and every product that offset_of makes fits 64 bits.
Status check_shape(const PutOffer& offer) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  if (offer.block_bytes == 0 || offer.layers == 0 || offer.num_blocks == 0) {
    return malformed("an arena without blocks");
  }
  const std::uint64_t blocks = std::uint64_t{offer.layers} * offer.num_blocks;
  if (blocks > kMax / offer.block_bytes) {
    return malformed("an arena that is too large");
  }
  if (offer.base > kMax - blocks * offer.block_bytes) {
    return malformed("an arena beyond the address space");
  }
  return {};
}

}  // namespace

std::optional<std::uint64_t> PutOffer::offset_of(std::uint32_t layer, BlockRun run) const {
  if (layer >= layers || run.count == 0 || run.first.value >= num_blocks ||
      run.count > num_blocks - run.first.value) {
    return std::nullopt;
  }
  return (std::uint64_t{layer} * num_blocks + run.first.value) * block_bytes;
}

std::vector<std::byte> encode(const PutOffer& offer) {
  if (offer.is_empty()) {
    return {};
  }
  BATON_CHECK(offer.key.size() <= kMaxKeyBytes, "a key that UCX packed is short");
  std::vector<std::byte> out(kFixedBytes);
  std::byte* at = out.data();
  at = put(at, kOfferMagic);
  at = put(at, kOfferVersion);
  at = put(at,
           static_cast<std::uint16_t>((offer.allows_rdma ? kAllowsRdma : 0) |
                                      (offer.allows_shm ? kAllowsShm : 0)));
  at = put(at, offer.base);
  at = put(at, offer.block_bytes);
  at = put(at, offer.layers);
  at = put(at, offer.num_blocks);
  at = put(at, offer.descriptor);
  at = put(at, static_cast<std::uint32_t>(offer.key.size()));
  at = put(at, offer.device);
  at = put(at, offer.inode);
  put(at, offer.mapped_bytes);
  out.insert(out.end(), offer.key.begin(), offer.key.end());
  return out;
}

Result<PutOffer> decode_offer(std::span<const std::byte> bytes) {
  PutOffer offer;
  if (bytes.empty()) {
    return offer;
  }
  if (bytes.size() < kFixedBytes) {
    return std::unexpected(malformed("it is cut short").error());
  }
  const std::byte* at = bytes.data();
  if (take<std::uint32_t>(at) != kOfferMagic || take<std::uint16_t>(at) != kOfferVersion) {
    return std::unexpected(malformed("wrong magic number or version").error());
  }
  const auto paths = take<std::uint16_t>(at);
  if (paths == 0 || (paths & ~(kAllowsRdma | kAllowsShm)) != 0) {
    return std::unexpected(malformed("unknown paths").error());
  }
  offer.allows_rdma = (paths & kAllowsRdma) != 0;
  offer.allows_shm = (paths & kAllowsShm) != 0;
  offer.base = take<std::uint64_t>(at);
  offer.block_bytes = take<std::uint64_t>(at);
  offer.layers = take<std::uint32_t>(at);
  offer.num_blocks = take<std::uint32_t>(at);
  offer.descriptor = take<std::uint32_t>(at);
  const auto key_bytes = take<std::uint32_t>(at);
  offer.device = take<std::uint64_t>(at);
  offer.inode = take<std::uint64_t>(at);
  offer.mapped_bytes = take<std::uint64_t>(at);
  if (key_bytes > kMaxKeyBytes || bytes.size() != kFixedBytes + key_bytes) {
    return std::unexpected(malformed("its key does not fit its length").error());
  }
  offer.key.assign(bytes.begin() + kFixedBytes, bytes.end());
  BATON_TRY(check_shape(offer));
  if (offer.allows_rdma == offer.key.empty()) {
    return std::unexpected(malformed("a key and the rdma path go together").error());
  }
  const bool has_file =
      offer.descriptor != 0 || offer.device != 0 || offer.inode != 0 || offer.mapped_bytes != 0;
  if (offer.allows_shm ? offer.mapped_bytes < offer.arena_bytes() : has_file) {
    return std::unexpected(malformed("its shared memory does not hold the arena").error());
  }
  return offer;
}

}  // namespace baton::transfer
