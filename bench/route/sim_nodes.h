// The simulated nodes of a replay: how long a prompt, a step and a transfer take there, what they
// hold and what they are at. Times are this file's own affair; the router only sees heartbeats.
//
// Thread: the replay's; virtual time in seconds. Failure: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "bench/route/block_cache.h"
#include "bench/route/noise.h"
#include "bench/route/trace.h"

namespace baton::bench {

// One request as the nodes see it.
struct SimJob {
  const TraceRequest* request = nullptr;
  std::uint32_t prefill = 0;  // number of the node among its role
  std::uint32_t decode = 0;
  std::uint32_t theirs = 0;       // leading tokens that decode held at the grant
  std::uint32_t held = 0;         // leading tokens in the prefill node's cache
  std::uint32_t pulled = 0;       // leading tokens behind them, taken from decode
  std::uint32_t blocks = 0;       // granted on the decode node
  std::uint32_t tokens_left = 0;  // of the answer
  double compute_s = 0;
  double predicted_s = 0;  // by the router
  double exposed_s = 0;    // transfer that did not hide behind computing
  double last_token_s = 0;

  std::uint32_t to_compute() const { return request->input_length - held - pulled; }
  std::uint32_t moved() const {  // from prefill to decode
    return request->input_length - std::min(theirs, request->input_length);
  }
};

class SimPrefill {
 public:
  SimPrefill(Noise& noise, std::size_t cache_blocks);

  // Looks into the cache, pulls what is worth it, and says how long it all takes.
  double begin(SimJob& job, double link_bytes_per_s, Noise& noise);
  void end(const SimJob& job);

  BlockCache cache;
  std::deque<std::size_t> queue;  // jobs, the first in work
  double tokens_per_s = 0;        // as it reports; 0: nothing computed yet

 private:
  double speed_;      // tokens a second, without attention
  double attention_;  // seconds for two tokens that meet
};

class SimDecode {
 public:
  SimDecode(Noise& noise, std::size_t blocks);

  bool grant(SimJob& job);  // false: no room
  void release(const SimJob& job);
  double step_seconds(std::size_t batch, std::uint64_t context_tokens, Noise& noise);
  std::size_t blocks_free() const { return blocks_ - granted_; }

  BlockCache cache;
  std::vector<std::size_t> running;  // jobs
  std::deque<std::size_t> arrived;   // join at the next step
  bool is_stepping = false;
  std::uint64_t steps = 0;
  double step_s = 0;  // as it reports

 private:
  std::size_t blocks_;
  std::size_t granted_ = 0;
  double slowness_;
};

// An 8B model with grouped heads: keys and values of one token.
inline constexpr double kTokenBytes = 131'072;
// Of the link between two nodes.
double link_bytes_per_s(std::uint32_t prefill, std::uint32_t decode, std::uint64_t seed);
// Of a transfer begun with computing, layer by layer.
double exposed_seconds(const SimJob& job, double link_bytes_per_s);

}  // namespace baton::bench
