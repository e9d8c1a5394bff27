// The sampling kernels against engine::Sampler, token for token: penalties, masks, every cut alone
// and together, equal logits, rows that hold what is no number; and the same answer whatever the
// batch and the order of threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "common/base/fixed_math.h"
#include "engine/sampling/sampler.h"
#include "kernels/cuda/logit_edits.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sample.h"
#include "tests/support/cuda_emulator.h"
#include "tests/unit/kernels/float_rows.h"

namespace baton::kernels::cuda {
namespace {

using baton::testing::launch;
using baton::testing::ThreadOrder;
using kernels::testing::random_floats;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class FixedMask final : public engine::TokenMask {
 public:
  explicit FixedMask(std::vector<std::uint32_t> words) : words_(std::move(words)) {}
  std::span<const std::uint32_t> allowed(std::span<const TokenId>) override { return words_; }
  const std::vector<std::uint32_t>& words() const { return words_; }

 private:
  std::vector<std::uint32_t> words_;
};

// One request's row.
struct Request {
  std::vector<float> logits;
  SamplingParams sampling;
  std::uint32_t choice = 0;
  std::vector<TokenId> prompt;
  std::vector<TokenId> output;
  std::vector<TokenId> barred;
  std::vector<std::uint32_t> mask;
};

TokenId by_sampler(const Request& request) {
  engine::Sampler sampler(request.logits.size());
  std::vector<float> logits = request.logits;
  FixedMask mask(request.mask);
  engine::SequenceSlice slice;
  slice.sampling = &request.sampling;
  slice.choice = request.choice;
  slice.prompt = request.prompt;
  slice.output = request.output;
  slice.barred = request.barred;
  slice.mask = request.mask.empty() ? nullptr : &mask;
  return sampler.sample(logits, slice).token;
}

// All requests in one launch.
std::vector<TokenId> by_kernels(std::span<const Request> requests,
                                ThreadOrder order = ThreadOrder::Ascending) {
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  std::vector<TokenBias> biases;
  std::vector<SeenToken> seen;
  std::vector<std::int32_t> barred;
  std::vector<std::uint32_t> masks;
  std::uint32_t num_masks = 0;
  for (const Request& request : requests) {
    const SamplingParams& s = request.sampling;
    logits.insert(logits.end(), request.logits.begin(), request.logits.end());
    SampleRow row;
    row.temperature = s.temperature;
    row.top_p = s.top_p;
    row.min_p = s.min_p;
    row.top_k = static_cast<std::uint32_t>(s.top_k);
    row.repetition_penalty = s.repetition_penalty;
    row.presence_penalty = s.presence_penalty;
    row.frequency_penalty = s.frequency_penalty;
    row.choice = request.choice;
    row.seed = s.seed;
    row.position = request.output.size();
    row.biases = {static_cast<std::uint32_t>(biases.size()),
                  static_cast<std::uint32_t>(s.logit_bias.size())};
    for (const LogitBias& entry : s.logit_bias) {
      biases.push_back({entry.token, entry.bias});
    }
    std::map<TokenId, std::uint32_t> times;
    for (const TokenId token : request.prompt) {
      times[token] += 0;
    }
    for (const TokenId token : request.output) {
      ++times[token];
    }
    row.seen = {static_cast<std::uint32_t>(seen.size()), static_cast<std::uint32_t>(times.size())};
    for (const auto& [token, count] : times) {
      seen.push_back({token, count});
    }
    row.barred = {static_cast<std::uint32_t>(barred.size()),
                  static_cast<std::uint32_t>(request.barred.size())};
    barred.insert(barred.end(), request.barred.begin(), request.barred.end());
    if (!request.mask.empty()) {
      row.mask = num_masks++;
      masks.insert(masks.end(), request.mask.begin(), request.mask.end());
    }
    rows.push_back(row);
  }
  std::vector<TokenId> tokens(rows.size(), -1);
  SampleArgs args;
  args.logits = logits.data();
  args.rows = rows.data();
  args.biases = biases.data();
  args.seen = seen.data();
  args.barred = barred.data();
  args.masks = masks.data();
  args.tokens = tokens.data();
  args.num_rows = static_cast<std::uint32_t>(rows.size());
  args.vocab = static_cast<std::uint32_t>(requests.front().logits.size());
  launch(edit_logits, edit_logits_shape(args), args, order);
  launch(sample_rows, sample_rows_shape(args), args, order);
  return tokens;
}

Request random_request(std::size_t vocab, std::mt19937& rng) {
  Request request;
  request.logits = random_floats(vocab, rng, 3.0F);
  request.sampling.seed = rng() * std::uint64_t{0x100000001};
  request.choice = static_cast<std::uint32_t>(rng() % 3);
  request.output.resize(rng() % 6);
  return request;
}

std::vector<Request> random_requests(std::mt19937& rng,
                                     std::size_t count,
                                     const std::function<void(Request&)>& shape) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < count; ++i) {
    requests.push_back(random_request(997, rng));
    shape(requests.back());
  }
  return requests;
}

void expect_as_sampler(const std::string& what, const std::vector<Request>& requests) {
  const std::vector<TokenId> got = by_kernels(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(got[i], by_sampler(requests[i])) << what << ", row " << i;
  }
}

TEST(CudaSampling, DrawsAsTheSamplerDoes) {
  std::mt19937 rng(61);
  expect_as_sampler("uncut", random_requests(rng, 40, [](Request&) {}));
  expect_as_sampler("hot",
                    random_requests(rng, 20, [](Request& r) { r.sampling.temperature = 2.0F; }));
  expect_as_sampler("greedy",
                    random_requests(rng, 10, [](Request& r) { r.sampling.temperature = 0.0F; }));
}

TEST(CudaSampling, EveryCutAloneAndTogether) {
  std::mt19937 rng(62);
  for (const std::int32_t top_k : {0, 1, 5, 50, 2000}) {
    for (const float top_p : {1.0F, 0.9F, 0.3F, 0.001F}) {
      for (const float min_p : {0.0F, 0.05F, 0.7F}) {
        expect_as_sampler(fmt::format("top_k {} top_p {} min_p {}", top_k, top_p, min_p),
                          random_requests(rng, 6, [&](Request& r) {
                            r.sampling.temperature = 1.3F;
                            r.sampling.top_k = top_k;
                            r.sampling.top_p = top_p;
                            r.sampling.min_p = min_p;
                          }));
      }
    }
  }
}

TEST(CudaSampling, EqualLogitsGoByToken) {
  std::mt19937 rng(63);
  for (const std::int32_t top_k : {0, 3, 40}) {
    for (const float top_p : {1.0F, 0.5F}) {
      expect_as_sampler("equals", random_requests(rng, 8, [&](Request& r) {
                          for (float& x : r.logits) {
                            x = std::round(x / 2.0F) * 2.0F;  // -0 too
                          }
                          r.sampling.top_k = top_k;
                          r.sampling.top_p = top_p;
                        }));
    }
  }
}

TEST(CudaSampling, BiasPenaltiesBarredTokensAndMasks) {
  std::mt19937 rng(64);
  for (const float temperature : {0.0F, 0.8F}) {
    expect_as_sampler("edits", random_requests(rng, 30, [&](Request& r) {
                        r.sampling.temperature = temperature;
                        r.sampling.repetition_penalty = 1.3F;
                        r.sampling.presence_penalty = 0.7F;
                        r.sampling.frequency_penalty = -0.4F;
                        r.sampling.logit_bias = {{3, 4.0F}, {5000, 9.0F}, {17, -kInfinity}};
                        for (int i = 0; i < 40; ++i) {
                          r.prompt.push_back(static_cast<TokenId>(rng() % 1010) - 5);
                          r.output.push_back(static_cast<TokenId>(rng() % 60));
                        }
                        r.barred = {1, 2, 996, 997, -1};
                        if (rng() % 2 == 0) {
                          for (int word = 0; word < 32; ++word) {
                            r.mask.push_back(static_cast<std::uint32_t>(rng() & rng() & rng()));
                          }
                          r.mask[0] |= 16;
                        }
                      }));
  }
}

TEST(CudaSampling, RowsWithoutAFiniteLargestLogitGiveTheirArgmax) {
  std::mt19937 rng(65);
  std::vector<Request> requests = random_requests(rng, 4, [](Request&) {});
  std::fill(requests[0].logits.begin(), requests[0].logits.end(), -kInfinity);
  requests[1].logits[700] = kInfinity;
  requests[1].logits[300] = kInfinity;
  std::fill(requests[2].logits.begin(),
            requests[2].logits.end(),
            std::numeric_limits<float>::quiet_NaN());
  requests[3].sampling.temperature = 0.0F;
  requests[3].logits[0] = std::numeric_limits<float>::quiet_NaN();
  expect_as_sampler("not finite", requests);
}

TEST(CudaSampling, ARowsTokenIsTheSameAloneAmong7AndAmong64) {
  std::mt19937 rng(66);
  const std::vector<Request> requests = random_requests(rng, 64, [&](Request& r) {
    r.sampling.top_k = static_cast<std::int32_t>(rng() % 3) * 20;
    r.sampling.top_p = rng() % 2 == 0 ? 1.0F : 0.8F;
  });
  const std::vector<TokenId> all = by_kernels(requests);
  EXPECT_EQ(by_kernels(requests, ThreadOrder::Descending), all);
  const std::span<const Request> span(requests);
  const std::vector<TokenId> seven = by_kernels(span.subspan(20, 7));
  EXPECT_TRUE(std::equal(seven.begin(), seven.end(), all.begin() + 20));
  for (std::size_t i = 0; i < requests.size(); i += 5) {
    EXPECT_EQ(by_kernels(span.subspan(i, 1)).front(), all[i]);
  }
}

TEST(CudaSampling, LogProbabilitiesAndTheBestTokens) {
  std::mt19937 rng(67);
  constexpr std::uint32_t kVocab = 997;
  constexpr std::uint32_t kTop = 5;
  constexpr std::uint32_t kRows = 7;
  std::vector<float> logits = random_floats(kRows * kVocab, rng, 4.0F);
  logits[10] = logits[20] = 30.0F;
  std::vector<float> best(kRows);
  std::vector<std::uint64_t> mass(kRows);
  std::vector<std::int32_t> top_tokens(kRows * kTop);
  std::vector<float> top_logits(kRows * kTop);
  const LogprobArgs args{.logits = logits.data(),
                         .best = best.data(),
                         .mass = mass.data(),
                         .top_tokens = top_tokens.data(),
                         .top_logits = top_logits.data(),
                         .num_rows = kRows,
                         .vocab = kVocab,
                         .top = kTop};
  launch(row_logprobs, logprobs_shape(args), args);
  engine::Sampler sampler(kVocab);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto want = sampler.score(std::span(logits).subspan(row * kVocab, kVocab), 3, kTop);
    const double log_sum =
        static_cast<double>(best[row]) + fixed_log(static_cast<double>(mass[row]) * 0x1p-44);
    EXPECT_NEAR(static_cast<double>(logits[row * kVocab + 3]) - log_sum, want.logprob, 1e-5);
    for (std::uint32_t n = 0; n < kTop; ++n) {
      EXPECT_EQ(top_tokens[row * kTop + n], want.top[n].token);
      EXPECT_NEAR(
          static_cast<double>(top_logits[row * kTop + n]) - log_sum, want.top[n].logprob, 1e-5);
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
