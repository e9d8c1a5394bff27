#include "engine/parallel/shard_plan.h"

#include "common/base/check.h"

namespace baton::engine {

ShardBorders cut_shards(std::uint32_t count, std::uint32_t unit) {
  BATON_CHECK(unit > 0, "a shard needs a unit");
  const std::uint64_t units = (std::uint64_t{count} + unit - 1) / unit;
  ShardBorders borders{};
  for (std::uint32_t s = 1; s < kVirtualShards; ++s) {
    borders[s] = static_cast<std::uint32_t>(units * s / kVirtualShards * unit);
  }
  borders[kVirtualShards] = count;
  return borders;
}

ShardRange shards_of(std::uint32_t rank, std::uint32_t ranks) {
  BATON_CHECK(ranks > 0 && kVirtualShards % ranks == 0 && rank < ranks,
              "ranks must divide the virtual shards");
  const std::uint32_t each = kVirtualShards / ranks;
  return {rank * each, (rank + 1) * each};
}

std::vector<std::uint32_t> chain_ends(const ShardBorders& borders, std::uint32_t width) {
  std::vector<std::uint32_t> ends;
  for (std::uint32_t s = 0; s < kVirtualShards; ++s) {
    if (borders[s] < borders[s + 1]) {
      ends.push_back(borders[s + 1] * width);
    }
  }
  return ends;
}

}  // namespace baton::engine
