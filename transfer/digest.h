// The digest of a lease's blocks: one 64-bit sum, in any order, of the XXH3 of each block of each
// layer, seeded by layer and by the block's index in the lease. A block that is torn, stale,
// missing, doubled, swapped with another or in a wrong place changes it. The writer takes it of the
// blocks it was told to send, the receiver of the blocks that its request will read, each by its
// own map of indices, so a mistake in between is found too.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "common/base/ids.h"
#include "common/types/kv_layout.h"

namespace baton::transfer {

// Which blocks are looked at; the numbers are those of Commit.digest_mode.
enum class DigestMode : std::uint8_t { Off = 0, Sample = 1, All = 2 };
std::string_view to_string(DigestMode mode);
std::optional<DigestMode> parse_digest_mode(std::string_view name);
std::optional<DigestMode> digest_mode_of(std::uint32_t number);
DigestMode stricter(DigestMode a, DigestMode b);

// One block in so many is looked at in mode Sample.
constexpr std::uint64_t kSampledOneIn = 16;
// The same answer on both sides, another choice for each lease.
bool is_sampled(LeaseId lease, std::uint32_t layer, std::uint32_t index);

class BlockDigest {
 public:
  BlockDigest() = default;  // mode Off
  BlockDigest(LeaseId lease, DigestMode mode) : lease_(lease), mode_(mode) {}

  DigestMode mode() const { return mode_; }
  bool is_on() const { return mode_ != DigestMode::Off; }
  // Adds one block of one layer when the mode looks at it. `index`: of the block in the lease.
  void add(std::uint32_t layer, std::uint32_t index, std::span<const std::byte> block);
  std::uint64_t value() const { return sum_; }

 private:
  LeaseId lease_;
  DigestMode mode_ = DigestMode::Off;
  std::uint64_t sum_ = 0;
};

// Bytes per second that one core digests, measured now on memory larger than its own caches (a few
// milliseconds).
double measure_digest_rate();

// What `auto` means: All where the digest takes less than 2 % of the time that a prompt's tokens
// take, at `prefill_tokens_per_s` and `digest_bytes_per_s`; else Sample.
DigestMode choose_digest_mode(const KvLayout& layout,
                              double prefill_tokens_per_s,
                              double digest_bytes_per_s);

}  // namespace baton::transfer
