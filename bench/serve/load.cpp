#include "bench/serve/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>

namespace baton::bench {
namespace {

// In (0, 1).
double uniform(const RandomSource& random) {
  return (static_cast<double>(random() >> 11U) + 0.5) * 0x1p-53;
}

// Standard normal, by Box and Muller.
double normal(const RandomSource& random) {
  const double radius = std::sqrt(-2 * std::log(uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * uniform(random));
}

std::optional<double> positive(std::string_view text) {
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || !(value > 0) ||
      value > Lengths::kMost) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

Result<Lengths> Lengths::parse(std::string_view text) {
  constexpr std::string_view kLognormal = "lognormal:";
  Lengths lengths;
  lengths.text_ = text;
  std::optional<double> low;
  std::optional<double> high;
  if (text.starts_with(kLognormal)) {
    lengths.kind_ = Kind::Lognormal;
    const std::string_view rest = text.substr(kLognormal.size());
    const std::size_t comma = std::min(rest.find(','), rest.size());
    low = positive(rest.substr(0, comma));
    high = positive(rest.substr(std::min(comma + 1, rest.size())));
  } else if (const std::size_t dash = text.find('-'); dash != std::string_view::npos) {
    lengths.kind_ = Kind::Uniform;
    low = positive(text.substr(0, dash));
    high = positive(text.substr(dash + 1));
  } else {
    low = high = positive(text);
  }
  if (!low || !high || (lengths.kind_ == Kind::Uniform && *low > *high)) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("'{}' is no length in tokens: 200, 100-300 or lognormal:200,0.5 "
                            "(median, sigma)",
                            text));
  }
  lengths.low_ = *low;
  lengths.high_ = *high;
  return lengths;
}

std::uint32_t Lengths::draw(const RandomSource& random) const {
  double length = low_;
  if (kind_ == Kind::Uniform) {
    length = std::floor(low_ + uniform(random) * (high_ - low_ + 1));
  } else if (kind_ == Kind::Lognormal) {
    length = low_ * std::exp(high_ * normal(random));
  }
  return static_cast<std::uint32_t>(std::clamp(std::round(length), 1.0, double{kMost}));
}

Load poisson_load(double rate,
                  std::size_t count,
                  const Lengths& input,
                  const Lengths& output,
                  std::uint64_t seed) {
  const RandomSource random = seeded_random(seed);
  Load load;
  double at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    at -= std::log(uniform(random)) / rate;
    load.push_back({at, input.draw(random), output.draw(random)});
  }
  return load;
}

Load load_of(const Trace& trace, double speed_up) {
  Load load;
  const double begin = trace.empty() ? 0 : trace.front().at_s;
  for (const TraceRequest& request : trace) {
    load.push_back(
        {(request.at_s - begin) / speed_up, request.input_length, request.output_length});
  }
  return load;
}

MeanLengths mean_lengths(const Load& load) {
  MeanLengths mean;
  for (const PlannedRequest& request : load) {
    mean.input += request.input_tokens / static_cast<double>(load.size());
    mean.output += request.output_tokens / static_cast<double>(load.size());
  }
  return mean;
}

std::string random_ids(std::size_t count, std::uint64_t seed) {
  constexpr std::uint64_t kFirst = 1000;
  constexpr std::uint64_t kIds = 20'000;
  const RandomSource random = seeded_random(seed);
  std::vector<std::uint64_t> ids;
  for (std::size_t i = 0; i < count; ++i) {
    ids.push_back(kFirst + random() % kIds);
  }
  return fmt::format("[{}]", fmt::join(ids, ","));
}

std::string random_words(std::size_t count, std::uint64_t seed) {
  constexpr std::array<std::string_view, 16> kWords{"river",
                                                    "stone",
                                                    "light",
                                                    "house",
                                                    "green",
                                                    "early",
                                                    "north",
                                                    "paper",
                                                    "water",
                                                    "music",
                                                    "table",
                                                    "small",
                                                    "under",
                                                    "white",
                                                    "train",
                                                    "seven"};
  const RandomSource random = seeded_random(seed);
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < count; ++i) {
    words.push_back(kWords[random() % kWords.size()]);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace baton::bench
