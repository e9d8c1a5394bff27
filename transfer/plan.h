// Turns "these blocks of one layer go to those blocks" into messages: neighbours on both sides
// become one segment, long segments are cut at the message limit, short ones share a message.
//
// Thread: pure functions. Failure: none; the caller has checked that both sides have equal length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/types/kv_grant.h"

namespace baton::transfer {

// `count` neighbouring blocks here that go to `count` neighbouring blocks there.
struct Segment {
  BlockId source{};
  BlockId target{};
  std::uint32_t count = 0;
  bool operator==(const Segment&) const = default;
};

// The blocks of one message.
struct Piece {
  std::uint32_t layer = 0;
  std::vector<Segment> segments;  // 1 .. PlanLimits::max_segments
  std::size_t bytes = 0;
};

struct PlanLimits {
  std::size_t block_bytes = 0;
  std::size_t max_bytes = std::size_t{1} << 20;  // of a message; a block is never cut
  std::size_t pack_below = 0;     // segments smaller than this share a message; 0: none do
  std::size_t max_segments = 64;  // in one message
};

// Appends the pieces that carry sources[i] to targets[i]. Together they carry each block once.
void plan_layer(std::uint32_t layer,
                std::span<const BlockId> sources,
                std::span<const BlockId> targets,
                const PlanLimits& limits,
                std::vector<Piece>& out);

// The block ids of runs, one by one.
std::vector<BlockId> expand(std::span<const BlockRun> runs);

}  // namespace baton::transfer
