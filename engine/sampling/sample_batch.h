// Rows that a backend samples in one call, put together from the slices that
// they belong to.
//
// Which requests a backend may sample depends on the request alone, never on
// the step: its draws are not the host sampler's to the last bit (masses below
// 2^-44 of the best token's count as none), and a request must be answered by
// one of the two from its first token to its last.
//
// Owner: a model runner. Thread: the engine thread. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/runner.h"
#include "kernels/ops.h"

namespace baton::engine {

// Whether a backend that samples samples this slice: log-probabilities and the
// masks of grammars, which may be late, are the host's.
bool is_for_backend(const SequenceSlice& slice);

class SampleBatch {
 public:
  void clear();
  // As Sampler::sample. REQUIRES: is_for_backend(slice).
  void add(const SequenceSlice& slice, std::size_t drafts);

  std::size_t size() const { return rows_.size(); }
  kernels::SampleRows rows() const { return {rows_, biases_, seen_, barred_}; }

 private:
  std::vector<kernels::SampleRow> rows_;
  std::vector<kernels::TokenBias> biases_;
  std::vector<kernels::SeenToken> seen_;
  std::vector<std::int32_t> barred_;
  std::map<TokenId, std::uint32_t> times_;  // of the row at hand
};

}  // namespace baton::engine
