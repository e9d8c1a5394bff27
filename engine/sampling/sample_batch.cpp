#include "engine/sampling/sample_batch.h"

#include "common/base/check.h"

namespace baton::engine {
namespace {

std::uint32_t u32(std::size_t value) {
  return static_cast<std::uint32_t>(value);
}

}  // namespace

bool is_for_backend(const SequenceSlice& slice) {
  return slice.sampling != nullptr && slice.sampling->num_logprobs < 0 && slice.mask == nullptr;
}

void SampleBatch::clear() {
  rows_.clear();
  biases_.clear();
  seen_.clear();
  barred_.clear();
}

void SampleBatch::add(const SequenceSlice& slice, std::size_t drafts) {
  BATON_CHECK(is_for_backend(slice), "a slice that the host samples");
  const SamplingParams& params = *slice.sampling;
  kernels::SampleRow row{.temperature = params.temperature,
                         .top_p = params.top_p,
                         .min_p = params.min_p,
                         .top_k = static_cast<std::uint32_t>(params.top_k),
                         .repetition_penalty = params.repetition_penalty,
                         .presence_penalty = params.presence_penalty,
                         .frequency_penalty = params.frequency_penalty,
                         .choice = slice.choice,
                         .seed = params.seed,
                         .position = slice.output.size() + drafts};
  row.biases = {u32(biases_.size()), u32(params.logit_bias.size())};
  for (const LogitBias& entry : params.logit_bias) {
    biases_.push_back({entry.token, entry.bias});
  }
  times_.clear();
  const bool repetition = params.repetition_penalty != 1.0F;
  if (repetition) {
    for (const TokenId token : slice.prompt) {
      times_[token] = 0;
    }
  }
  if (repetition || params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F) {
    for (const auto tokens : {slice.output, slice.drafts.first(drafts)}) {
      for (const TokenId token : tokens) {
        ++times_[token];
      }
    }
  }
  row.seen = {u32(seen_.size()), u32(times_.size())};
  for (const auto& [token, times] : times_) {
    seen_.push_back({token, times});
  }
  row.barred = {u32(barred_.size()), u32(slice.barred.size())};
  barred_.insert(barred_.end(), slice.barred.begin(), slice.barred.end());
  rows_.push_back(row);
}

}  // namespace baton::engine
