// Chooses a prefill and a decode node for a request: a pure function of an immutable view.
//
// Decode is chosen by memory and batch (share of the batch taken, then free blocks), prefill by the
// time its queue will take. A pair must agree on numerics and have layouts that can be converted
// into each other. Short prompts, or all of them where no prefill node exists, are prefilled on a
// decode node that allows it.
//
// What a request should avoid, it avoids while there is anything else, even if that is taken now; a
// pair that is out of routing is never taken.
//
// Thread: plain values and functions. Failure: RouteMiss says whether waiting can help.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/types/kv_layout.h"

namespace baton::gateway {

// One registration of a node; a number is never used again.
using NodeHandle = StrongId<struct NodeHandleTag, std::uint64_t>;

enum class NodeRole : std::uint8_t { Prefill, Decode };

struct NodePair {
  NodeHandle prefill{};
  NodeHandle decode{};
  bool operator==(const NodePair&) const = default;
};

struct NodeView {
  NodeHandle handle{};
  NodeRole role = NodeRole::Prefill;
  std::uint64_t model_stamp = 0;  // of weights, tokenizer and numerics
  KvLayout layout;
  std::uint64_t numerics_hash = 0;
  bool is_alive = true;  // heartbeats arrive in time
  bool is_draining = false;
  bool is_busy = false;  // refused lately, and nothing has changed there since
  std::uint32_t block_tokens = 32;
  // Prefill.
  std::uint32_t credits_left = 0;
  std::uint64_t queued_tokens = 0;  // the larger of what it reports and what we gave it
  float prefill_tokens_per_s = 0;   // 0: not measured yet
  // Decode.
  std::uint32_t running = 0;  // the larger of what it reports and what we gave it
  std::uint32_t max_batch = 0;
  std::uint32_t blocks_free = 0;
  std::uint32_t open_reserves = 0;
  std::uint32_t local_prefill_max_tokens = 0;
};

struct RouteNeed {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t context_tokens = 0;       // to be prefilled: prompt and what was generated before
  std::uint32_t total_tokens = 0;         // prompt and the most the answer may have
  std::uint64_t model_stamp = 0;          // only such nodes; 0: any
  std::span<const NodeHandle> avoid;      // nodes on which this request failed
  std::span<const NodePair> avoid_pairs;  // pairs between which it failed
  std::span<const NodePair> out;          // pairs that nobody may use
};

struct Route {
  NodeHandle prefill{};  // zero: the decode node prefills itself
  NodeHandle decode{};
  bool is_local() const { return prefill == NodeHandle{}; }
};

enum class RouteMiss : std::uint8_t {
  NoPair,      // no two nodes could serve it, however long it waits
  NoCapacity,  // a pair exists; its credits or blocks are taken
};

// Reserve calls in flight to one decode node; more would only be refused together.
inline constexpr std::uint32_t kMaxOpenReserves = 8;

// `nodes`: those of the request's model.
std::expected<Route, RouteMiss> choose_route(std::span<const NodeView> nodes,
                                             const RouteNeed& need);
// True when some pair could serve some request, now or after others have finished.
bool has_usable_pair(std::span<const NodeView> nodes, std::span<const NodePair> out = {});

}  // namespace baton::gateway
