// A vocabulary may have 262 144 entries, so nothing here sorts all of it: greedy is one pass, top_k
// keeps a heap of k, top_p finds the logit that holds its mass by a histogram and sorts what is
// above.
#include "engine/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <limits>

#include "common/base/check.h"
#include "common/base/fixed_math.h"
#include "common/base/keyed_random.h"

namespace baton::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Masses are gathered in slices of logits this fine, from the best down to e^-64 of it.
constexpr std::size_t kBuckets = 2048;
constexpr float kBucketsALogit = 32.0F;

float maximum(std::span<const float> row) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> best;
  best.fill(kMinusInfinity);
  const std::size_t whole = row.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      best[j] = row[i + j] > best[j] ? row[i + j] : best[j];
    }
  }
  float result = kMinusInfinity;
  for (const float value : best) {
    result = value > result ? value : result;
  }
  for (std::size_t i = whole; i < row.size(); ++i) {
    result = row[i] > result ? row[i] : result;
  }
  return result;
}

// Bars what is not among `allowed`, a bit a token; no words bar nothing.
void apply_mask(std::span<float> logits, std::span<const std::uint32_t> allowed) {
  if (allowed.empty()) {
    return;
  }
  BATON_CHECK(allowed.size() * 32 >= logits.size(), "a mask covers the vocabulary");
  for (std::size_t word = 0; word * 32 < logits.size(); ++word) {
    if (allowed[word] == ~std::uint32_t{0}) {
      continue;
    }
    const std::size_t end = std::min(logits.size(), word * 32 + 32);
    for (std::size_t i = word * 32; i < end; ++i) {
      if ((allowed[word] >> (i % 32) & 1U) == 0) {
        logits[i] = kMinusInfinity;
      }
    }
  }
}

}  // namespace

TokenId argmax(std::span<const float> logits) {
  const auto it = std::find(logits.begin(), logits.end(), maximum(logits));
  return it == logits.end() ? 0 : static_cast<TokenId>(it - logits.begin());
}

Sampler::Sampler(std::size_t vocab_size) : weights_(vocab_size), counts_(vocab_size) {}

SampledToken Sampler::sample(std::span<float> logits,
                             const SequenceSlice& slice,
                             std::size_t drafts) {
  BATON_CHECK(logits.size() == weights_.size(), "a row of logits is a vocabulary long");
  BATON_CHECK(slice.sampling != nullptr, "a slice that samples says how");
  const SamplingParams& params = *slice.sampling;
  SampledToken out;
  std::vector<float> raw;
  const bool wants_logprobs = params.num_logprobs >= 0;
  if (wants_logprobs) {
    fill_logprobs(logits, static_cast<std::size_t>(params.num_logprobs), out);
    raw.assign(logits.begin(), logits.end());
  }
  for (const LogitBias& entry : params.logit_bias) {
    if (entry.token >= 0 && static_cast<std::size_t>(entry.token) < logits.size()) {
      logits[static_cast<std::size_t>(entry.token)] += entry.bias;
    }
  }
  apply_penalties(logits, slice, drafts);
  for (const TokenId token : slice.barred) {
    if (token >= 0 && static_cast<std::size_t>(token) < logits.size()) {
      logits[static_cast<std::size_t>(token)] = kMinusInfinity;
    }
  }
  if (slice.mask != nullptr) {
    apply_mask(logits, slice.mask->allowed(slice.drafts.first(drafts)));
  }
  if (params.temperature <= 0.0F) {
    out.token = argmax(logits);
  } else {
    out.token = draw(
        logits, params, keyed_uniform(params.seed, slice.choice, slice.output.size() + drafts));
  }
  if (wants_logprobs) {
    out.logprob = static_cast<float>(static_cast<double>(raw[static_cast<std::size_t>(out.token)]) -
                                     log_sum_);
  }
  return out;
}

SampledToken Sampler::score(std::span<const float> logits,
                            TokenId token,
                            std::uint32_t alternatives) {
  BATON_CHECK(logits.size() == weights_.size(), "a row of logits is a vocabulary long");
  BATON_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size(),
              "a scored token is in the vocabulary");
  SampledToken out;
  out.token = token;
  fill_logprobs(logits, alternatives, out);
  out.logprob =
      static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - log_sum_);
  return out;
}

void Sampler::apply_penalties(std::span<float> logits,
                              const SequenceSlice& slice,
                              std::size_t drafts) {
  const SamplingParams& params = *slice.sampling;
  const bool repetition = params.repetition_penalty != 1.0F;
  const bool counted = params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F;
  if (!repetition && !counted) {
    return;
  }
  const std::span<const TokenId> drafted = slice.drafts.first(drafts);
  const auto in_vocab = [&](TokenId t) {
    return t >= 0 && static_cast<std::size_t>(t) < logits.size();
  };
  // The high bit of a count says that the repetition penalty has been paid.
  constexpr std::uint32_t kPaid = 1U << 31U;
  const auto repeat = [&](std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
      if (!in_vocab(token) || (counts_[static_cast<std::size_t>(token)] & kPaid) != 0) {
        continue;
      }
      counts_[static_cast<std::size_t>(token)] |= kPaid;
      float& logit = logits[static_cast<std::size_t>(token)];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
  };
  if (repetition) {
    repeat(slice.prompt);
    repeat(slice.output);
    repeat(drafted);
  }
  const auto penalise = [&](std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
      if (!in_vocab(token)) {
        continue;
      }
      std::uint32_t& count = counts_[static_cast<std::size_t>(token)];
      if (const std::uint32_t times = count & ~kPaid; times > 0) {
        logits[static_cast<std::size_t>(token)] -=
            params.presence_penalty + static_cast<float>(times) * params.frequency_penalty;
        count &= kPaid;
      }
    }
  };
  if (counted) {
    for (const auto tokens : {slice.output, drafted}) {
      for (const TokenId token : tokens) {
        if (in_vocab(token)) {
          ++counts_[static_cast<std::size_t>(token)];
        }
      }
    }
    penalise(slice.output);
    penalise(drafted);
  }
  for (const auto tokens : {slice.prompt, slice.output, drafted}) {
    for (const TokenId token : tokens) {
      if (in_vocab(token)) {
        counts_[static_cast<std::size_t>(token)] = 0;
      }
    }
  }
}

void Sampler::fill_logprobs(std::span<const float> logits, std::size_t count, SampledToken& out) {
  const float best = maximum(logits);
  const double sum = fixed_exp_row(logits.data(), logits.size(), -best, weights_.data());
  log_sum_ = static_cast<double>(best) + (sum > 0 ? fixed_log(sum) : 0.0);
  count = std::min(count, logits.size());
  if (count == 0) {
    return;
  }
  select_best(logits, count);
  for (std::size_t i = 0; i < count; ++i) {
    out.top.push_back({candidates_[i].token,
                       static_cast<float>(static_cast<double>(candidates_[i].logit) - log_sum_)});
  }
}

TokenId Sampler::draw(std::span<float> logits, const SamplingParams& params, double uniform) {
  for (float& logit : logits) {
    logit /= params.temperature;
  }
  if (params.top_k > 0 || params.top_p < 1.0F || params.min_p > 0.0F) {
    return draw_cut(logits, params, uniform);
  }
  const float best = maximum(logits);
  const double sum = fixed_exp_row(logits.data(), logits.size(), -best, weights_.data());
  double rest = uniform * sum;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    rest -= static_cast<double>(weights_[i]);
    if (rest < 0) {
      return static_cast<TokenId>(i);
    }
  }
  return argmax(logits);  // rounding used up the mass
}

TokenId Sampler::draw_cut(std::span<const float> logits,
                          const SamplingParams& params,
                          double uniform) {
  const float best = maximum(logits);
  double total = 0.0;  // the mass that top_p is a share of
  if (params.top_k > 0) {
    select_best(logits, std::min(static_cast<std::size_t>(params.top_k), logits.size()));
  } else {
    total = select_mass(logits, best, params);
  }
  // Weights of the candidates, best first, at the front of weights_.
  const std::size_t count = candidates_.size();
  for (std::size_t i = 0; i < count; ++i) {
    weights_[i] = candidates_[i].logit;
  }
  const double held = fixed_exp_row(weights_.data(), count, -best, weights_.data());
  if (params.top_k > 0) {
    total = held;
  }
  double mass = 0.0;
  std::size_t kept = 0;
  while (kept < count && (kept == 0 || weights_[kept] >= params.min_p * weights_[0])) {
    mass += static_cast<double>(weights_[kept++]);
    if (params.top_p < 1.0F && mass >= static_cast<double>(params.top_p) * total) {
      break;
    }
  }
  double rest = uniform * mass;
  for (std::size_t i = 0; i < kept; ++i) {
    rest -= static_cast<double>(weights_[i]);
    if (rest < 0) {
      return candidates_[i].token;
    }
  }
  return count > 0 ? candidates_[0].token : argmax(logits);  // rounding used up the mass
}

double Sampler::select_mass(std::span<const float> logits,
                            float best,
                            const SamplingParams& params) {
  const double total = fixed_exp_row(logits.data(), logits.size(), -best, weights_.data());
  const auto bucket = [best](float logit) {
    const float below = (best - logit) * kBucketsALogit;
    return below < static_cast<float>(kBuckets - 1) ? static_cast<std::size_t>(below)
                                                    : kBuckets - 1;
  };
  bucket_mass_.assign(kBuckets, 0.0);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    bucket_mass_[bucket(logits[i])] += static_cast<double>(weights_[i]);
  }
  std::size_t last = 0;
  for (double mass = bucket_mass_[0];
       last + 1 < kBuckets && (params.top_p >= 1.0F || mass < params.top_p * total);) {
    mass += bucket_mass_[++last];
  }
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (weights_[i] > 0.0F && weights_[i] >= params.min_p && bucket(logits[i]) <= last) {
      candidates_.push_back({logits[i], static_cast<TokenId>(i)});
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
  return total;
}

void Sampler::select_best(std::span<const float> logits, std::size_t count) {
  // A heap of the best so far, the worst of them in front; most logits fail its first comparison.
  candidates_.clear();
  std::size_t i = 0;
  for (; i < count; ++i) {
    candidates_.push_back({logits[i], static_cast<TokenId>(i)});
  }
  std::make_heap(candidates_.begin(), candidates_.end(), better);
  for (; i < logits.size(); ++i) {
    // Ids ascend, so an equal logit is worse than what the heap holds.
    if (logits[i] > candidates_.front().logit) {
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.back() = {logits[i], static_cast<TokenId>(i)};
      std::push_heap(candidates_.begin(), candidates_.end(), better);
    }
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), better);
}

}  // namespace baton::engine
