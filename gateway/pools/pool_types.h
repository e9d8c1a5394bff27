// What the pool policy is told at every interval, and what it decides: values.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/exec/executor.h"
#include "gateway/routing/node_view.h"

namespace baton::gateway {

struct PoolNode {
  NodeHandle handle{};
  NodeRole role = NodeRole::Prefill;
  bool is_usable = true;            // alive and not draining
  bool may_change = false;          // can run the other role, and lets this gateway ask for it
  double prefill_tokens_per_s = 0;  // 0: not measured
  double step_s = 0;                // 0: not measured
  std::uint32_t running = 0;        // sequences of its batch, or prompts it has
  std::uint32_t max_batch = 0;
  std::uint64_t kv_tokens = 0;  // that its arena holds; 0: not reported
};

// One interval of one model's pools.
struct PoolObservation {
  double seconds = 0;
  double stands_for = 1;  // requests, that each one really seen was counted as
  // Arrived in it.
  std::uint32_t requests = 0;
  double prompt_tokens = 0;
  double prompt_tokens_squared = 0;  // sum of the squares of the lengths
  // Ended in it.
  std::uint32_t ended = 0;
  double ended_prompt_tokens = 0;
  double cached_tokens = 0;  // of those prompts, not computed
  double output_tokens = 0;
  // At its end.
  std::uint32_t waiting = 0;         // requests that no node has yet
  double waiting_prompt_tokens = 0;  // theirs, and those queued on prefill nodes
  std::vector<PoolNode> nodes;
  // Nodes between two roles, by the one they are to get.
  std::uint32_t to_prefill = 0;
  std::uint32_t to_decode = 0;
};

struct PoolSize {
  std::uint32_t prefill = 0;
  std::uint32_t decode = 0;
  std::uint32_t of(NodeRole role) const { return role == NodeRole::Prefill ? prefill : decode; }
  bool operator==(const PoolSize&) const = default;
};

struct PoolOptions {
  PoolSize least{1, 1};
  PoolSize most{64, 64};
  std::optional<PoolSize> ratio;  // kept whatever the load; empty: follows the load
  double ttft_s = 2;              // targets of the load's usual tier
  double itl_s = 0.2;
  Duration cooldown = std::chrono::seconds(120);  // between two changes
};

// What a split of the nodes goes by: the smallest pools come first.
enum class SplitBy : std::uint8_t { Load, Ratio, Floor };

struct PoolDecision {
  // Nodes of each role that keep the targets, for whoever can start and stop nodes.
  PoolSize desired;
  // Roles for the nodes that there are.
  PoolSize split;
  // To be given the role `to` now; all of them have the other one.
  std::vector<NodeHandle> change;
  NodeRole to = NodeRole::Prefill;
  SplitBy by = SplitBy::Load;
  // Enough was seen to say what follows.
  bool has_room = false;
  // How many times the expected load both pools carry with their targets kept, as they are and with
  // `split`.
  double room_now = 0;
  double room_then = 0;
};

}  // namespace baton::gateway
