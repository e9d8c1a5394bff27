// Shows that answers never depend on how they were computed: starts real clusters in several
// configurations, asks each the same prompts, greedy and seeded, and compares token ids.
//
// Three clusters, nine passes over the prompts:
//   colocated  one process, 1 thread, chunks of 512, no prefix cache     greedy, seeded
//   tcp        prefill and decode, 2 threads, 512, prefix cache          greedy, greedy warm,
//   seeded,
//                                                                        then both one by one
//   shm        prefill and decode, 2 threads, 16, no prefix cache        greedy, seeded
// With `speculation` other passes, with guesses one prompt at a time, so that they pay:
//   plain        one process without speculation                         greedy, seeded, penalties
//   speculative  prefill and decode, with                                the same
// Each check compares two passes and fails as well when what the cluster says it did
// (batch sizes, chunks, cache hits, bytes over UCX) shows that the check's case never happened.
//
// Thread: the caller's; one thread a concurrent request inside. Failure: a cluster that does not
// come up or a request that fails gives its Error; a difference is a failed check, not an Error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

struct SameTokensOptions {
  std::string prompts_file;                     // JSONL: {"prompt": text, "max_tokens": n}
  std::string model = "smollm2-135m-instruct";  // catalogue name, or a path of a GGUF file
  std::string kv_dtype = "i16";                 // kv.dtype of the nodes
  // Ranks of the prefill node in tcp and of the decode node in shm; the others have one.
  unsigned tensor_parallel = 1;
  std::string bin_folder;                          // where the programs are
  std::string run_folder;                          // configurations and logs
  std::string speculation;                         // ngram, draft; empty: the checks without
  std::string draft_model;                         // GGUF file or catalogue name, for draft
  unsigned batch = 8;                              // that the big batches must reach
  unsigned arena_mb = 1024;                        // of each node
  std::function<void(std::string_view)> progress;  // a line for people; may be empty
};

// What a pass was seen to do, summed over its requests.
struct Evidence {
  std::uint32_t requests = 0;
  std::uint32_t min_batch = 0;  // of each request's largest batch
  std::uint32_t max_batch = 0;
  std::uint32_t max_chunks = 0;  // most prefill chunks of a request
  std::string threads;           // of each node's engine, as the nodes' logs say
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint32_t cache_hits = 0;  // requests with cached tokens
  std::uint64_t drafted_tokens = 0;
  std::uint64_t accepted_tokens = 0;
  std::uint64_t ucx_bytes = 0;
  std::string transports;  // lanes that bytes were seen to take, joined by +

  std::string to_string() const;
};

struct Difference {
  std::size_t prompt = 0;    // line in the prompts file, from 1
  std::size_t position = 0;  // first differing token of the output
  std::int64_t left = -1;    // -1: that answer had ended
  std::int64_t right = -1;
};

struct SameTokensCheck {
  std::string name;  // "(a) prefill and decode over tcp, greedy"
  bool passed = false;
  std::size_t answers = 0;  // compared
  Evidence evidence;
  Evidence other;             // of the pass it was compared with
  std::string not_exercised;  // why the case did not happen; empty: it did
  std::vector<Difference> differences;

  std::string to_string() const;  // one line, without differences
};

Result<std::vector<SameTokensCheck>> run_same_tokens(const SameTokensOptions& options);

// {"checks": [...]} in one line.
std::string to_json(const std::vector<SameTokensCheck>& checks);

}  // namespace baton::bench
