// Draws a token from a row of edited logits: temperature, then the cuts top_k, top_p and min_p,
// then a draw keyed by (seed, choice, position). A block a row.
//
// Nothing is sorted. Each cut keeps a beginning of the row in the order best first, the lower token
// first among equals, so it is named by its last logit and how many of those equal to it are kept.
// Such a place is found by a measure, a count of tokens or their mass: histograms over eight bits
// of the logits' order at a time, four times. Masses are whole numbers of 2^-44 of the best
// token's, so that they add up alike in any order; what is less likely than that has none.
//
// The draw goes best first where a cut is on, else by token, as engine/sampling/sampler.h does;
// sums there are in double, so the two could differ where a uniform number falls within 1e-12 of a
// border.
//
// Source: radix select.
//
// Thread: a kernel's. Failure: none; a row that has no finite largest logit gives its argmax.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/fixed_math.h"
#include "common/base/keyed_random.h"
#include "kernels/cuda/block_sums.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/sampling_args.h"

namespace baton::kernels::cuda {

inline constexpr unsigned kSampleThreads = 512;
inline constexpr float kMassUnits = 0x1p44F;

inline LaunchShape sample_rows_shape(const SampleArgs& args) {
  return {.x = args.num_rows, .threads = kSampleThreads};
}

struct SampleShared {
  BlockNumbers<kSampleThreads> numbers;
  unsigned long long counts[256];
  std::uint32_t digit;
  unsigned long long rest;
  unsigned long long segments[kSampleThreads];
};

// One row of logits, already divided by the temperature.
struct LogitRow {
  const float* logits;
  std::uint32_t vocab;
  float best;
};
BATON_DEVICE std::uint64_t mass_of(float logit, float best) {
  const float weight = fixed_exp_lane(logit - best);
  return weight >= 0.0F ? static_cast<std::uint64_t>(weight * kMassUnits) : 0;
}

// A beginning of the row, best first: all logits above `key`'s, and `ties` equal to it.
struct Cut {
  std::uint32_t key;
  std::uint64_t ties;
};
BATON_DEVICE Cut shorter(const Cut& a, const Cut& b) {
  if (a.key != b.key) {
    return a.key > b.key ? a : b;
  }
  return a.ties < b.ties ? a : b;
}

struct CountMeasure {
  BATON_MEMBER std::uint64_t operator()(const LogitRow&, float) const { return 1; }
};
struct MassMeasure {
  BATON_MEMBER std::uint64_t operator()(const LogitRow& row, float logit) const {
    return mass_of(logit, row.best);
  }
};

// The shortest beginning that measures `wanted`. REQUIRES: 1 <= wanted <= the whole row's measure.
template <class Measure>
BATON_DEVICE Cut
find_cut(SampleShared& shared, const LogitRow& row, std::uint64_t wanted, const Measure& measure) {
  std::uint32_t found = 0;  // the key's leading bits
  std::uint64_t rest = wanted;
  for (unsigned shift = 24; shift <= 24; shift -= 8) {
    for (unsigned i = thread_index(); i < 256; i += kSampleThreads) {
      shared.counts[i] = 0;
    }
    sync_threads();
    for (unsigned i = thread_index(); i < row.vocab; i += kSampleThreads) {
      const std::uint32_t key = ordered(row.logits[i]);
      if (shift == 24 || key >> (shift + 8) == found) {
        atomic_add_shared(&shared.counts[key >> shift & 0xFFU],
                          static_cast<unsigned long long>(measure(row, row.logits[i])));
      }
    }
    sync_threads();
    if (thread_index() == 0) {
      unsigned digit = 255;
      unsigned long long left = rest;
      while (digit > 0 && shared.counts[digit] < left) {
        left -= shared.counts[digit--];
      }
      shared.digit = digit;
      shared.rest = left;
    }
    sync_threads();
    found = found << 8 | shared.digit;
    rest = shared.rest;
    sync_threads();
  }
  const std::uint64_t each = measure(row, float_of_ordered(found));
  return {found, each == 0 ? 1 : (rest + each - 1) / each};
}

// How much a beginning of the row weighs.
BATON_DEVICE std::uint64_t mass_within(SampleShared& shared, const LogitRow& row, const Cut& cut) {
  std::uint64_t above = 0;
  std::uint64_t equal = 0;
  for (unsigned i = thread_index(); i < row.vocab; i += kSampleThreads) {
    const std::uint32_t key = ordered(row.logits[i]);
    above += key > cut.key ? mass_of(row.logits[i], row.best) : 0;
    equal += key == cut.key ? 1 : 0;
  }
  above = block_combine(shared.numbers, above, Sum{});
  equal = block_combine(shared.numbers, equal, Sum{});
  const std::uint64_t kept = cut.ties < equal ? cut.ties : equal;
  return kept == 0 ? above : above + kept * mass_of(float_of_ordered(cut.key), row.best);
}

// The token at which the measure of the tokens up to it, in their order, reaches `wanted`. Every
// thread measures a segment of the row. REQUIRES: 1 <= wanted <= the whole row's measure.
template <class Measure>
BATON_DEVICE std::uint32_t find_token(SampleShared& shared,
                                      std::uint32_t vocab,
                                      std::uint64_t wanted,
                                      const Measure& measure) {
  const std::uint32_t each = (vocab + kSampleThreads - 1) / kSampleThreads;
  const std::uint32_t first = thread_index() * each;
  const std::uint32_t end = first + each < vocab ? first + each : vocab;
  std::uint64_t sum = 0;
  for (std::uint32_t i = first; i < end; ++i) {
    sum += measure(i);
  }
  shared.segments[thread_index()] = sum;
  sync_threads();
  if (thread_index() == 0) {
    std::uint32_t owner = 0;
    unsigned long long rest = wanted;
    while (owner + 1 < kSampleThreads && shared.segments[owner] < rest) {
      rest -= shared.segments[owner++];
    }
    std::uint32_t token = owner * each;
    for (; token + 1 < vocab; ++token) {
      const std::uint64_t here = measure(token);
      if (here >= rest) {
        break;
      }
      rest -= here;
    }
    shared.digit = token;
  }
  sync_threads();
  return shared.digit;
}

// What a uniform number in [0, 1) points at, of `mass`.
BATON_DEVICE std::uint64_t drawn(double uniform, std::uint64_t mass) {
  const auto before = static_cast<std::uint64_t>(uniform * static_cast<double>(mass));
  return before + 1 < mass ? before + 1 : mass;
}

BATON_DEVICE std::uint32_t draw(SampleShared& shared,
                                const SampleRow& params,
                                const LogitRow& row) {
  constexpr Cut kAll{0, ~std::uint64_t{0}};
  const double uniform = keyed_uniform(params.seed, params.choice, params.position);
  Cut kept = kAll;
  if (params.top_k > 0 && params.top_k < row.vocab) {
    kept = find_cut(shared, row, params.top_k, CountMeasure{});
  }
  std::uint64_t mass = mass_within(shared, row, kept);
  if (params.top_k == 0 && params.top_p >= 1.0F && params.min_p <= 0.0F) {
    return find_token(shared, row.vocab, drawn(uniform, mass), [&](std::uint32_t i) {
      return mass_of(row.logits[i], row.best);
    });
  }
  bool is_cut_again = false;
  if (params.top_p < 1.0F) {
    const double share = static_cast<double>(params.top_p) * static_cast<double>(mass);
    auto wanted = static_cast<std::uint64_t>(share);
    wanted += static_cast<double>(wanted) < share ? 1 : 0;
    wanted = wanted < 1 ? 1 : wanted > mass ? mass : wanted;
    kept = shorter(kept, find_cut(shared, row, wanted, MassMeasure{}));
    is_cut_again = true;
  }
  if (params.min_p > 0.0F) {
    std::uint64_t least = 0xFFFFFFFFU;
    for (unsigned i = thread_index(); i < row.vocab; i += kSampleThreads) {
      const std::uint32_t key = ordered(row.logits[i]);
      const bool likely = fixed_exp_lane(row.logits[i] - row.best) >= params.min_p;
      least = likely && key < least ? key : least;
    }
    least = block_combine(shared.numbers, least, Least{});
    kept = shorter(kept, {static_cast<std::uint32_t>(least), ~std::uint64_t{0}});
    is_cut_again = true;
  }
  mass = is_cut_again ? mass_within(shared, row, kept) : mass;
  const Cut last = find_cut(shared, row, drawn(uniform, mass), MassMeasure{});
  return find_token(shared, row.vocab, last.ties, [&](std::uint32_t i) {
    return std::uint64_t{ordered(row.logits[i]) == last.key ? 1U : 0U};
  });
}

[[maybe_unused]] static BATON_KERNEL(kSampleThreads) sample_rows(SampleArgs args) {
  BATON_SHARED(SampleShared, shared);
  const SampleRow& params = args.rows[block_index()];
  float* const logits = args.logits + std::size_t{block_index()} * args.vocab;
  const bool greedy = params.temperature <= 0.0F;
  // The largest logit, and the lowest of its tokens, as one number.
  std::uint64_t best = 0;
  for (unsigned i = thread_index(); i < args.vocab; i += kSampleThreads) {
    if (!greedy) {
      logits[i] = logits[i] / params.temperature;
    }
    const std::uint64_t mine = std::uint64_t{ordered(logits[i])} << 32 | (0xFFFFFFFFU - i);
    best = mine > best ? mine : best;
  }
  best = block_combine(shared.numbers, best, Largest{});
  std::uint32_t token = 0xFFFFFFFFU - static_cast<std::uint32_t>(best);
  const LogitRow row{logits, args.vocab, float_of_ordered(static_cast<std::uint32_t>(best >> 32))};
  if (!greedy && row.best - row.best == 0.0F) {
    token = draw(shared, params, row);
  }
  if (thread_index() == 0) {
    args.tokens[block_index()] = static_cast<std::int32_t>(token);
  }
}

}  // namespace baton::kernels::cuda
