// Replays a trace against simulated nodes under one routing policy. The nodes' times come from a
// model of their own, with noise, that shares nothing with what the router predicts: speeds differ
// from node to node, attention grows with the context, steps slow down with batch and context,
// links share their bandwidth unevenly, and now and then a node hiccups. The gateway in between is
// the real router over views as old as its heartbeats.
//
// Thread: the caller's; virtual time. Failure: none. One seed gives one result.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bench/route/trace.h"
#include "bench/spread.h"

namespace baton::bench {

enum class ReplayPolicy : std::uint8_t { Random, LeastLoad, Approximate, Precise, Cost };
inline constexpr ReplayPolicy kReplayPolicies[] = {ReplayPolicy::Random,
                                                   ReplayPolicy::LeastLoad,
                                                   ReplayPolicy::Approximate,
                                                   ReplayPolicy::Precise,
                                                   ReplayPolicy::Cost};
std::string_view to_string(ReplayPolicy policy);

struct ReplayOptions {
  std::uint32_t prefill_nodes = 8;
  std::uint32_t decode_nodes = 8;
  std::uint32_t cache_blocks = 200;  // of 512 tokens, on each prefill node
  std::uint32_t decode_blocks = 0;   // on each decode node; 0: cache_blocks and room to run
  std::uint32_t credits = 4;         // requests in work on a prefill node
  std::uint32_t max_batch = 64;
  double heartbeat_s = 0.25;
  double warm_up = 0.2;  // share of the requests, the first ones, that count for nothing
  std::uint64_t seed = 1;
};

struct ReplayResult {
  ReplayPolicy policy = ReplayPolicy::Random;
  std::size_t finished = 0;
  Spread ttft_s;
  Spread itl_s;                       // of all pauses between two tokens
  double hit_rate = 0;                // of prompt tokens: in the prefill node's cache
  double pulled_rate = 0;             // taken from the decode node instead
  std::uint64_t computed_tokens = 0;  // of prompts
  std::uint64_t moved_tokens = 0;     // from prefill to decode nodes
};

// The number of the first request that counts.
std::size_t first_counted(const Trace& trace, const ReplayOptions& options);
ReplayResult replay(const Trace& trace, const ReplayOptions& options, ReplayPolicy policy);

}  // namespace baton::bench
