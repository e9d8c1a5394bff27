// A node as the router sees it: a value, made anew for each decision from what the node reports,
// what this gateway has given it, and what was learned of its speed.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "common/types/kv_layout.h"

namespace baton::gateway {

// One registration of a node; a number is never used again.
using NodeHandle = StrongId<struct NodeHandleTag, std::uint64_t>;

enum class NodeRole : std::uint8_t { Prefill, Decode };

struct NodePair {
  NodeHandle prefill{};
  NodeHandle decode{};
  auto operator<=>(const NodePair&) const = default;
};

struct NodeView {
  NodeHandle handle{};
  NodeRole role = NodeRole::Prefill;
  std::uint64_t name_hash = 0;    // equal on every gateway
  std::uint64_t model_stamp = 0;  // of weights, tokenizer and numerics
  KvLayout layout;
  std::uint64_t numerics_hash = 0;
  bool is_alive = true;  // heartbeats arrive in time
  bool is_draining = false;
  bool is_busy = false;  // refused lately, and nothing has changed there since
  std::uint32_t block_tokens = 32;
  std::uint64_t queued_tokens = 0;  // what we gave it, less what it holds, and others' work
  float prefill_tokens_per_s = 0;   // 0: not measured yet
  // Prefill.
  std::uint32_t credits_left = 0;
  double work_s = -1;  // what is left of the work we gave it, as predicted; below 0: not predicted
  std::uint64_t foreign_tokens = 0;  // of its queue, by others
  // Decode.
  std::uint32_t running = 0;  // the larger of what it reports and what we gave it
  std::uint32_t max_batch = 0;
  std::uint32_t blocks_total = 0;  // 0: not reported
  std::uint32_t blocks_free = 0;
  std::uint32_t local_prefill_max_tokens = 0;
  float step_s = 0;  // 0: not measured yet
  // Learned by this gateway; both 0: not yet.
  double prefill_s_per_token = 0;
  double prefill_s_per_meeting = 0;  // of two tokens in attention
  double step_base_s = 0;
  double step_s_per_sequence = 0;
};

}  // namespace baton::gateway
