// What a backend that samples is given for each row of logits. The rules are
// those of engine/sampling/sampler.h, which is what it is checked against.
//
// Thread: plain values. Failure: none; tokens that the vocabulary does not have
// are passed over.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::kernels {

struct TokenBias {
  std::int32_t token;
  float bias;
};
// A token of a row's past. Each token once a row.
struct SeenToken {
  std::int32_t token;
  std::uint32_t times;  // in the output; 0: in the prompt only
};

// A part of one of the lists that all rows share.
struct ListPart {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

inline constexpr std::uint32_t kNoMask = 0xFFFFFFFFU;

struct SampleRow {
  float temperature = 1.0F;  // 0: the largest logit, the lowest token among equals
  float top_p = 1.0F;        // 1: off
  float min_p = 0.0F;        // 0: off
  std::uint32_t top_k = 0;   // 0: off
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::uint32_t choice = 0;
  std::uint64_t seed = 0;
  std::uint64_t position = 0;  // tokens generated before
  ListPart biases;
  ListPart seen;
  ListPart barred;
  std::uint32_t mask = kNoMask;  // which mask
};

}  // namespace baton::kernels
