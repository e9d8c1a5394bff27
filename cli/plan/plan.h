// What a deployment needs, by arithmetic, before it exists: nodes of each role, KV blocks, the link
// that hides the transfer, the latencies to expect, and whether one pool of nodes that do both
// phases would do with as many.
//
// Prefill is bound by products, decode by bytes read: weights once a step and every sequence's keys
// and values. Requests come at random (Poisson). The wait for a prefill node follows Erlang C with
// the mean halved, since equal prompts take equal time (Allen and Cunneen's approximation); what a
// decode node holds follows from Little's law.
//
// Thread: pure functions. Failure: InvalidArgument that names the number; NotFound when no number
// of nodes up to kMostNodes meets the targets, with the reason.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/error.h"
#include "common/types/kv_layout.h"

namespace baton::cli {

struct PlanModel {
  KvLayout layout;
  std::uint64_t weight_bytes = 0;     // read in each step
  std::uint64_t row_products = 0;     // multiplications of a row through all layers
  std::uint64_t head_products = 0;    // of a sampled row through the output head
  std::uint64_t attention_width = 0;  // query heads times head size
};

// One node of either role.
struct PlanNode {
  double ops_per_s = 0;         // multiplications and additions at peak
  double read_bytes_per_s = 0;  // memory at peak
  double prefill_share = 0.4;   // of ops_per_s that prefill reaches
  double decode_share = 0.7;    // of read_bytes_per_s that decode reaches
  std::uint64_t arena_bytes = 0;
  double link_bytes_per_s = 0;  // of a node; 0: not known, then as fast as is needed
};

struct PlanWorkload {
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  double requests_per_s = 0;
  double cached_share = 0;  // of input tokens, found in prefix caches
  double ttft_s = 0;        // target, for nine of ten requests
  double itl_s = 0;         // target, for nine of ten steps
};

struct Plan {
  std::uint32_t prefill_nodes = 0;
  std::uint32_t decode_nodes = 0;
  double prefill_s = 0;             // of one prompt, alone
  double ttft_s = 0;                // nine of ten
  double itl_s = 0;                 // nine of ten
  double prefill_busy = 0;          // share of time
  double decode_batch = 0;          // sequences a decode node holds, mean
  double decode_batch_high = 0;     // nine of ten
  std::uint32_t blocks_needed = 0;  // of a decode node, for decode_batch_high
  std::uint32_t blocks_there = 0;
  std::uint64_t kv_bytes = 0;  // of a prompt, sent
  double link_needed = 0;      // bytes a second of a prefill node that hide the transfer
  double transfer_tail_s = 0;  // what of the transfer is not hidden
  double rate_headroom = 0;    // the rate could grow by this factor with the same nodes
  // Nodes of one pool that do both phases, prompts cut into chunks that keep the ITL target; empty:
  // no number of them meets the targets.
  std::optional<std::uint32_t> colocated_nodes;

  std::uint32_t nodes() const { return prefill_nodes + decode_nodes; }
  bool pays() const { return !colocated_nodes || *colocated_nodes > nodes(); }
};

inline constexpr std::uint32_t kMostNodes = 4096;

Result<Plan> make_plan(const PlanModel& model, const PlanNode& node, const PlanWorkload& load);

}  // namespace baton::cli
