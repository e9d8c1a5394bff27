// Measures the engine alone, beside llama.cpp on the same file: prefill and decode tokens a second,
// ours and the peer's in turns. What `baton bench engine` prints.
//
// Thread: the caller's; peers run as child processes. Failure: an unreadable model, or a peer that
// was asked for and cannot be found or run, gives an Error that names it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

struct EngineBenchOptions {
  std::string model;  // path of a GGUF file
  // Empty: ours alone. "auto": the newest build under $BATON_CACHE/peers (default
  // ~/.cache/baton/peers). Otherwise a folder with llama-bench and llama-batched-bench.
  std::string peer;
  std::vector<unsigned> prefill_tokens{512, 2048};
  std::vector<unsigned> batches{1, 4, 8};
  std::vector<unsigned> threads{1, 2};
  unsigned decode_prompt = 128;                    // tokens each sequence holds when decode begins
  unsigned decode_tokens = 64;                     // tokens each sequence generates
  unsigned repetitions = 3;                        // turns of each row; the median counts
  std::function<void(std::string_view)> progress;  // a line for people; may be empty
};

struct EngineBenchRow {
  std::string file;     // name of the model file
  std::string phase;    // prefill or decode
  unsigned tokens = 0;  // prefill: prompt length; decode: tokens generated a sequence
  unsigned batch = 1;
  unsigned threads = 1;
  double tokens_per_s = 0;       // of the whole batch
  double peer_tokens_per_s = 0;  // 0: no peer
  double ratio = 0;              // ours / peer; 0: no peer
  // Share of the machine's measured roofs: the time that reading the weights and keys and values
  // once a step, or the products at the best 8-bit rate, would take, over the time it took.
  double roof_share = 0;
};

Result<std::vector<EngineBenchRow>> run_engine_bench(const EngineBenchOptions& options);

// {"rows": [...]} in one line.
std::string to_json(const std::vector<EngineBenchRow>& rows);

}  // namespace baton::bench
