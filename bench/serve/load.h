// The load of `bench serve`: when each request is due, how long its prompt is and how many tokens
// it asks for. Arrivals at random (Poisson) with lengths of a distribution, or those of a recorded
// trace.
//
// Thread: plain values and functions. Failure: a text that is no distribution gives
// InvalidArgument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/route/trace.h"
#include "common/base/error.h"
#include "common/base/random.h"

namespace baton::bench {

// Lengths in tokens: "200" (always), "100-300" (uniform, both ends included) or
// "lognormal:200,0.5" (median, sigma).
class Lengths {
 public:
  static constexpr std::uint32_t kMost = 1U << 20U;

  static Result<Lengths> parse(std::string_view text);
  std::uint32_t draw(const RandomSource& random) const;  // 1 to kMost
  std::string to_string() const { return text_; }

 private:
  enum class Kind : std::uint8_t { Fixed, Uniform, Lognormal };
  Kind kind_ = Kind::Fixed;
  double low_ = 1;   // or the median
  double high_ = 1;  // or sigma
  std::string text_;
};

struct PlannedRequest {
  double at_s = 0;  // after the start
  std::uint32_t input_tokens = 1;
  std::uint32_t output_tokens = 1;
};
using Load = std::vector<PlannedRequest>;  // in order of time

// `count` requests, `rate` a second on average.
Load poisson_load(double rate,
                  std::size_t count,
                  const Lengths& input,
                  const Lengths& output,
                  std::uint64_t seed);
// Its times divided by `speed_up`.
Load load_of(const Trace& trace, double speed_up);

struct MeanLengths {
  double input = 0;
  double output = 0;
};
MeanLengths mean_lengths(const Load& load);

// Token ids that every vocabulary has, in no order, as a JSON list: no two seeds begin alike.
std::string random_ids(std::size_t count, std::uint64_t seed);
// About so many tokens of plain words.
std::string random_words(std::size_t count, std::uint64_t seed);

}  // namespace baton::bench
