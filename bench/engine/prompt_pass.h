// One pass over a list of prompts against a running cluster: sends them with a fixed number under
// way at once and keeps ids and figures of each answer.
//
// Thread: the caller's, and one for each concurrent request. Failure: the first request that fails
// ends the pass with its Error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

struct Prompt {
  std::string text;
  std::uint32_t max_tokens = 64;
};

// Reads JSONL lines {"prompt": text, "max_tokens": n}; other keys are ignored. Errors name file and
// line.
Result<std::vector<Prompt>> read_prompts(const std::string& path);

struct Answer {
  std::vector<std::int64_t> token_ids;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t prefix_blocks_held = 0;
  std::uint32_t max_batch = 0;
  std::uint32_t chunks = 0;
  std::uint32_t drafted_tokens = 0;
  std::uint32_t accepted_tokens = 0;
  std::uint64_t kv_bytes_moved = 0;
  std::string kv_transport;
  std::string prefill_node;
  std::string decode_node;
};

struct PassOptions {
  std::string base_url;
  std::string model;
  bool seeded = false;     // temperature 0.8, top_p 0.95, the prompt's index as seed; else greedy
  bool penalties = false;  // presence and frequency
  unsigned concurrency = 1;
};

Result<std::vector<Answer>> run_pass(const std::vector<Prompt>& prompts,
                                     const PassOptions& options);

}  // namespace baton::bench
