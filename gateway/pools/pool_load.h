// What the pools are asked for and what a node can do, learned from observations; from both, how
// many times the expected load a number of nodes would carry with the targets kept (its room).
//
// Demand: requests and prompt tokens that arrive, looked ahead by Trend; lengths of answers that
// ended; what waits, to be worked off soon. Speed: what nodes report. Prefill: a queue of random
// arrivals (common/base/queueing.h). Decode: steps that grow with the batch, at most as long as the
// target for the time between tokens.
//
// Thread: plain value. Failure: none; `is_known` is false until nodes and enough requests were
// seen.
#pragma once

#include <cstdint>

#include "gateway/pools/pool_types.h"
#include "gateway/pools/trend.h"
#include "gateway/routing/two_term_fit.h"

namespace baton::gateway {

class PoolLoad {
 public:
  static constexpr double kMostRoom = 100;  // that of no load

  explicit PoolLoad(const PoolOptions& options) : ttft_s_(options.ttft_s), itl_s_(options.itl_s) {}

  void change_targets(const PoolOptions& options) {
    ttft_s_ = options.ttft_s;
    itl_s_ = options.itl_s;
  }
  void observe(const PoolObservation& seen);
  bool is_known() const;
  // Enough was seen to take something away.
  bool is_settled() const { return requests_.count() >= Trend::kLong; }
  // For a long while nothing came, and nothing is in work.
  bool is_idle() const;

  double prefill_room(std::uint32_t nodes) const;
  double decode_room(std::uint32_t nodes) const;
  double room(PoolSize size) const;
  // Prefill's work beside decode's, in nodes; its logarithm. Moves when the mix of requests does,
  // not when there are more of the same.
  double mix() const;

 private:
  double step_s(double batch) const;
  // Of one decode node within the targets.
  double largest_batch() const;
  double prefill_service_s() const;  // of a mean prompt

  double ttft_s_;
  double itl_s_;

  double answers_seen_ = 0;  // since the start, by this gateway
  double lately_ = 0;        // requests of the last while
  double waiting_ = 0;       // now

  Trend requests_;    // a second
  Trend tokens_;      // of prompts, a second
  Trend squares_;     // of their lengths
  double ended_ = 0;  // of the last while
  double ended_prompt_ = 0;
  double cached_ = 0;
  double output_ = 0;
  double node_tokens_per_s_ = 0;  // prefill, mean of the nodes
  TwoTermFit steps_;              // seconds by 1 and sequences
  double last_step_s_ = 0;
  double max_batch_ = 0;
  double kv_tokens_ = 0;
  double running_ = 0;  // sequences on all decode nodes, short mean
  std::uint32_t decode_nodes_ = 0;

  // Expected a little ahead, with what waits.
  double rate_ = 0;           // requests a second
  double prompt_ = 0;         // tokens of one that are computed
  double prompt_spread_ = 0;  // variance of that over the square of the mean
  double context_ = 0;        // tokens of one that are kept
  double answer_ = 0;         // tokens of one
};

}  // namespace baton::gateway
