// Perplexity of a text under a model, by llama-perplexity's method so that the figures compare: the
// tokens are cut into chunks of n_ctx, the first token of each becomes BOS where the model adds
// one, and the second half of every chunk is scored.
//
// Thread: the caller's. Failure: an unreadable model or text, or a text of fewer than two chunks,
// gives an Error.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/error.h"
#include "common/types/kv_layout.h"

namespace baton::bench {

struct PerplexityOptions {
  std::string model;      // path of a GGUF file
  std::string text_file;  // UTF-8
  unsigned context = 512;
  unsigned chunks = 0;                             // 0: all
  unsigned threads = 0;                            // 0: all cores
  std::string float_path = "exact";                // of the cpu backend
  std::string backend = "cpu";                     // cpu, cuda or reference
  KvDType kv_dtype = KvDType::I16;                 // of keys and values
  std::function<void(std::string_view)> progress;  // one line a chunk; may be empty
};

struct PerplexityResult {
  double perplexity = 0;
  double standard_error = 0;
  std::size_t tokens = 0;  // scored
  unsigned chunks = 0;
};

Result<PerplexityResult> run_perplexity(const PerplexityOptions& options);

}  // namespace baton::bench
