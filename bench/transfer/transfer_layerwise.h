// How much of a transfer hides behind the computation it comes from: a prompt is computed by the
// real engine in the chunks that a prefill node plans, each layer's blocks are posted when the
// layer's keys and values are there, as a prefill node does, and another process receives them.
//
// Thread: the caller's is the engine thread; starts one child process (baton-transfer-probe).
// Failure: the engine's Error for the model; see transfer_process.h for the child.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/error.h"

namespace baton::bench {

struct LayerwiseOptions {
  std::string model;  // path of a GGUF file
  std::uint32_t prompt_tokens = 2000;
  std::uint32_t chunk_tokens = 0;  // 0: the configuration's default
  unsigned threads = 0;            // 0: all cores
  std::string transport = "tcp";
  std::uint32_t repetitions = 9;  // pairs of passes, digests off and all; the medians count
  std::string probe;              // program; empty: beside this one
  std::function<void(std::string_view)> progress;
};

struct LayerwiseReport {
  std::string transport;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t chunk_tokens = 0;
  std::uint32_t chunks = 0;
  std::uint64_t bytes = 0;
  // Shares of the bytes that UCX had taken and completed at this side: when the last layer of the
  // last chunk had its keys and values (its attention and the rest of it still to come), and when
  // that layer and the sampling were over.
  double hidden_share = 0;
  double hidden_share_at_end = 0;
  double prefill_ms = 0;  // from the first chunk's start to the first token, digests off
  double alone_ms = 0;    // the same without a transfer
  double commit_ms = 0;   // from the first token to Commit: everything flushed
  double landed_ms = 0;   // from the first token until the other side has counted every byte
  // What digests of all blocks, taken on both sides, add to prefill and landing, as a share of
  // prefill: the median over pairs of passes, off and all in turns. May be below 0 by noise.
  double digest_cost_share = 0;
  double digest_cost_spread = 0;  // of the pairs, quartile to quartile
  double digest_gb_per_s = 0;     // of the digest over the prompt's blocks, one thread
  double digest_raw_share = 0;    // both sides' digests at that speed, as a share of prefill
};

Result<LayerwiseReport> run_layerwise(const LayerwiseOptions& options);
// A JSON object.
std::string to_json(const LayerwiseReport& report);

}  // namespace baton::bench
