#include "transfer/plan.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton::transfer {

void plan_layer(std::uint32_t layer,
                std::span<const BlockId> sources,
                std::span<const BlockId> targets,
                const PlanLimits& limits,
                std::vector<Piece>& out) {
  BATON_CHECK(sources.size() == targets.size(), "a plan needs one target for each source");
  BATON_CHECK(limits.block_bytes > 0 && limits.max_segments > 0, "plan limits are set");
  const auto max_blocks = static_cast<std::uint32_t>(
      std::clamp<std::size_t>(limits.max_bytes / limits.block_bytes, 1, UINT32_MAX));
  Piece shared{layer, {}, 0};  // collects short segments
  const auto close_shared = [&] {
    if (!shared.segments.empty()) {
      out.push_back(std::move(shared));
      shared = Piece{layer, {}, 0};
    }
  };
  std::size_t i = 0;
  while (i < sources.size()) {
    Segment segment{sources[i], targets[i], 1};
    while (i + segment.count < sources.size() && segment.count < max_blocks &&
           sources[i + segment.count].value == segment.source.value + segment.count &&
           targets[i + segment.count].value == segment.target.value + segment.count) {
      ++segment.count;
    }
    i += segment.count;
    const std::size_t bytes = segment.count * limits.block_bytes;
    if (bytes >= limits.pack_below) {
      out.push_back(Piece{layer, {segment}, bytes});
      continue;
    }
    if (shared.segments.size() == limits.max_segments ||
        (!shared.segments.empty() && shared.bytes + bytes > limits.max_bytes)) {
      close_shared();
    }
    shared.segments.push_back(segment);
    shared.bytes += bytes;
  }
  close_shared();
}

std::vector<BlockId> expand(std::span<const BlockRun> runs) {
  std::vector<BlockId> blocks;
  for (const BlockRun& run : runs) {
    for (std::uint32_t i = 0; i < run.count; ++i) {
      blocks.emplace_back(run.first.value + i);
    }
  }
  return blocks;
}

}  // namespace baton::transfer
