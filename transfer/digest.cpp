// Compiled with this file's own flags instead of the library's: half as fast again. The values are
// the same on every machine.
#define XXH_INLINE_ALL

#include "transfer/digest.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

namespace baton::transfer {
namespace {

constexpr double kAffordableShare = 0.02;

std::uint64_t place(std::uint32_t layer, std::uint32_t index) {
  return std::uint64_t{layer} << 32U | index;
}

}  // namespace

std::string_view to_string(DigestMode mode) {
  switch (mode) {
    case DigestMode::Off:
      return "off";
    case DigestMode::Sample:
      return "sample";
    case DigestMode::All:
      return "all";
  }
  return "unknown";
}

std::optional<DigestMode> parse_digest_mode(std::string_view name) {
  for (const DigestMode mode : {DigestMode::Off, DigestMode::Sample, DigestMode::All}) {
    if (name == to_string(mode)) {
      return mode;
    }
  }
  return std::nullopt;
}

std::optional<DigestMode> digest_mode_of(std::uint32_t number) {
  return number <= static_cast<std::uint32_t>(DigestMode::All)
             ? std::optional(static_cast<DigestMode>(number))
             : std::nullopt;
}

DigestMode stricter(DigestMode a, DigestMode b) {
  return std::max(a, b);
}

bool is_sampled(LeaseId lease, std::uint32_t layer, std::uint32_t index) {
  const std::array<std::uint64_t, 3> key{lease.high, lease.low, place(layer, index)};
  return XXH3_64bits(key.data(), sizeof(key)) % kSampledOneIn == 0;
}

void BlockDigest::add(std::uint32_t layer, std::uint32_t index, std::span<const std::byte> block) {
  if (mode_ == DigestMode::All ||
      (mode_ == DigestMode::Sample && is_sampled(lease_, layer, index))) {
    sum_ += XXH3_64bits_withSeed(block.data(), block.size(), place(layer, index));
  }
}

double measure_digest_rate() {
  constexpr std::size_t kBlock = std::size_t{64} << 10;
  const std::vector<std::byte> memory(std::size_t{16} << 20, std::byte{0x5a});
  const auto pass = [&] {
    BlockDigest digest({1, 1}, DigestMode::All);
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at < memory.size(); at += kBlock) {
      digest.add(0, static_cast<std::uint32_t>(at / kBlock), std::span(memory).subspan(at, kBlock));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    // The value takes part, so that the pass cannot be left out.
    return static_cast<double>(memory.size()) /
           std::max(took.count(), digest.value() == 0 ? 1.0 : 1e-9);
  };
  // The best of a few: others may use the core meanwhile.
  return std::max({pass(), pass(), pass()});
}

DigestMode choose_digest_mode(const KvLayout& layout,
                              double prefill_tokens_per_s,
                              double digest_bytes_per_s) {
  const double bytes_per_token =
      static_cast<double>(layout.block_bytes_all_layers()) / layout.block_tokens;
  const double share = bytes_per_token * prefill_tokens_per_s / digest_bytes_per_s;
  return share < kAffordableShare ? DigestMode::All : DigestMode::Sample;
}

}  // namespace baton::transfer
