// A decode node's promise of blocks: who may write them, where, and for how long.
//
// Thread: plain values. Failure: none; a grant that came over a wire is checked by its codec.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/types/kv_layout.h"

namespace baton {

// `count` blocks with neighbouring ids.
struct BlockRun {
  BlockId first{};
  std::uint32_t count = 0;
  bool operator==(const BlockRun&) const = default;
};

struct KvGrant {
  NodeName node;              // the decode node
  Incarnation incarnation{};  // its life at the time of the grant
  LeaseId lease;
  Epoch epoch{};
  std::uint64_t layout_hash = 0;  // of the blocks to write
  KvLayout layout;                // the same spelt out; no layers: not told, then the writer's own
  std::string control_address;    // host:port of the node's control listener, for Commit
  std::uint32_t prefix_blocks = 0;  // leading full blocks the node already holds; they are not sent
  std::vector<BlockRun> runs;  // where block prefix_blocks, prefix_blocks + 1, … of the prompt go
  std::chrono::milliseconds ttl{30'000};  // relative, renewed by heartbeats
};

}  // namespace baton
