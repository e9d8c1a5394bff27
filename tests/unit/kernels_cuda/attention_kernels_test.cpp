// Paged attention's kernels: against float64, and bit for bit however a sequence is cut into steps,
// whichever sequences share a step, and in whatever order a block's threads run. Every place that
// no token was written to holds what is no number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "tests/unit/kernels/float_rows.h"
#include "tests/unit/kernels_cuda/paged_sequences.h"

namespace baton::kernels::cuda {
namespace {

using baton::testing::ThreadOrder;
using kernels::testing::expect_same_bits;
using testing::AttentionCase;
using testing::PagedSequences;
using testing::Rows;

const AttentionCase kCases[] = {
    {"llama f16", 6, 2, 64, 0, 0, 32, KvElement::Half, 330},
    {"llama bf16", 6, 2, 64, 0, 0, 32, KvElement::Bfloat, 330},
    {"llama i8", 6, 2, 64, 0, 0, 32, KvElement::Int8, 330},
    {"llama f8", 6, 2, 64, 0, 0, 16, KvElement::E4m3, 330},
    {"llama i16", 6, 2, 64, 0, 0, 32, KvElement::Int16, 330},
    {"128 f16", 4, 1, 128, 0, 0, 32, KvElement::Half, 300},
    {"128 f32", 2, 1, 128, 0, 0, 32, KvElement::Float, 270},
    {"gemma local", 2, 1, 256, 70, 0, 64, KvElement::Half, 290},
    {"gemma bf16", 2, 1, 256, 0, 50.0F, 32, KvElement::Bfloat, 100},
    {"window over ranges", 2, 2, 32, 300, 0, 16, KvElement::Half, 600},
    {"small window", 2, 2, 32, 5, 0, 16, KvElement::Int8, 290},
    {"softcap", 4, 2, 80, 0, 30.0F, 48, KvElement::Half, 280},
    {"odd head", 3, 3, 20, 64, 0, 32, KvElement::Half, 150},
    {"odd head i8", 3, 1, 20, 0, 0, 32, KvElement::Int8, 150},
    {"many heads a group", 40, 1, 16, 0, 0, 64, KvElement::Half, 70},
};

// Queries, keys, values and weights are rounded to the products' 16-bit floats.
double tolerance(KvElement element) {
  return element == KvElement::Bfloat ? 1.2e-2 : 1.5e-3;
}

std::vector<float> in_steps(const AttentionCase& c, PagedSequences& sequences, std::uint32_t step) {
  std::vector<float> out;
  for (std::uint32_t first = 0; first < c.length; first += step) {
    const Rows rows{0, first, std::min(step, c.length - first)};
    sequences.write({&rows, 1});
    const std::vector<float> part = sequences.attend({&rows, 1});
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

TEST(CudaAttention, AgreesWithFloat64) {
  std::mt19937 rng(41);
  for (const AttentionCase& c : kCases) {
    PagedSequences sequences(c, 1, rng);
    const std::vector<float> got = in_steps(c, sequences, c.length);
    double worst = 0;
    std::uint32_t where = 0;
    for (std::uint32_t position = 0; position < c.length; position += 5) {
      const std::vector<double> want = sequences.oracle(0, position);
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double error = std::fabs(got[position * c.q_width() + i] - want[i]);
        if (!(error <= worst)) {
          worst = error;
          where = position;
        }
      }
    }
    EXPECT_LE(worst, tolerance(c.element)) << c.name << " at position " << where;
  }
}

TEST(CudaAttention, ChunksOfAnySizeAndDecodeGiveTheSameBits) {
  std::mt19937 rng(42);
  for (const AttentionCase& c : kCases) {
    PagedSequences sequences(c, 1, rng);
    const std::vector<float> want = in_steps(c, sequences, c.length);
    for (const std::uint32_t step : {100U, 8U}) {
      expect_same_bits(in_steps(c, sequences, step), want, fmt::format("{} by {}", c.name, step));
    }
    // One token a step, at the borders of tiles and ranges and here and there.
    for (std::uint32_t position = 0; position < c.length; ++position) {
      if (position % 64 > 1 && position % 64 != 63 && position % 41 != 0) {
        continue;
      }
      const Rows rows{0, position, 1};
      const auto from = want.begin() + static_cast<std::ptrdiff_t>(position * c.q_width());
      expect_same_bits(sequences.attend({&rows, 1}),
                       std::vector<float>(from, from + static_cast<std::ptrdiff_t>(c.q_width())),
                       fmt::format("{}, position {} alone", c.name, position));
    }
  }
}

TEST(CudaAttention, TheOrderOfThreadsDoesNotMatter) {
  std::mt19937 rng(43);
  for (const AttentionCase& c : {kCases[0], kCases[2], kCases[7]}) {
    PagedSequences sequences(c, 1, rng);
    const Rows all{0, 0, c.length};
    sequences.write({&all, 1});
    for (const Rows rows : {all, Rows{0, c.length - 2, 2}}) {
      expect_same_bits(sequences.attend({&rows, 1}, ThreadOrder::Descending),
                       sequences.attend({&rows, 1}),
                       c.name);
    }
  }
}

TEST(CudaAttention, AStepThatIsPaddedGivesTheSameBits) {
  std::mt19937 rng(46);
  for (const AttentionCase& c : {kCases[0], kCases[2], kCases[7], kCases[14]}) {
    PagedSequences sequences(c, 3, rng);
    std::vector<Rows> step;
    for (const std::uint32_t count : {1U, 4U, 30U}) {
      const auto s = static_cast<std::uint32_t>(step.size());
      const Rows all{s, 0, c.length};
      sequences.write({&all, 1});
      step.push_back({s, c.length - count - s, count});
    }
    expect_same_bits(sequences.attend_padded(step), sequences.attend(step), c.name);
  }
}

// Decode steps and chunks of prompts side by side: each as if alone.
TEST(CudaAttention, ARowHasTheSameBitsAloneAmong7AndAmong64) {
  std::mt19937 rng(44);
  const AttentionCase c{"batch", 4, 2, 64, 0, 0, 16, KvElement::Half, 290};
  constexpr std::uint32_t kSequences = 64;
  PagedSequences sequences(c, kSequences, rng);
  std::vector<Rows> step;
  for (std::uint32_t s = 0; s < kSequences; ++s) {
    const std::uint32_t count = s % 9 == 4 ? 40 : 1 + s % 3;
    step.push_back({s, s % 8 == 0 ? c.length - count : (s * 37) % (c.length - count), count});
    const Rows past{s, 0, step.back().first + count};
    sequences.write({&past, 1});
  }
  const std::vector<float> among_64 = sequences.attend(step);
  const std::vector<float> among_7 = sequences.attend(std::span(step).first(7));
  std::size_t at = 0;
  for (std::uint32_t s = 0; s < kSequences; ++s) {
    const std::size_t floats = step[s].count * c.q_width();
    const auto part = [&](const std::vector<float>& from) {
      const auto first = from.begin() + static_cast<std::ptrdiff_t>(at);
      return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(floats));
    };
    const std::vector<float> alone = sequences.attend({&step[s], 1});
    expect_same_bits(part(among_64), alone, fmt::format("sequence {} among 64", s));
    if (s < 7) {
      expect_same_bits(part(among_7), alone, fmt::format("sequence {} among 7", s));
    }
    at += floats;
  }
}

// A token whose query, key or value is no number spoils the rows that see it, and no others.
TEST(CudaAttention, HostileValuesStayWithTheRowsThatSeeThem) {
  std::mt19937 rng(45);
  constexpr std::uint32_t kAt = 21;
  for (const KvElement element : {KvElement::Half,
                                  KvElement::Bfloat,
                                  KvElement::Float,
                                  KvElement::Int8,
                                  KvElement::E4m3,
                                  KvElement::Int16}) {
    const AttentionCase c{"hostile", 1, 1, 32, 8, 0, 16, element, 40};
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      PagedSequences good(c, 1, rng);
      const std::vector<float> want = in_steps(c, good, c.length);
      for (const int which : {0, 1, 2}) {
        PagedSequences spoiled = good;
        (which == 0   ? spoiled.queries()
         : which == 1 ? spoiled.keys()
                      : spoiled.values())[kAt * c.head_dim + 3] = bad;
        const std::vector<float> got = in_steps(c, spoiled, c.length);
        for (std::uint32_t row = 0; row < c.length; ++row) {
          const bool sees = which == 0 ? row == kAt : row >= kAt && row < kAt + c.window;
          const auto of = [&](const std::vector<float>& from) {
            const auto first = from.begin() + static_cast<std::ptrdiff_t>(row * c.head_dim);
            return std::vector<float>(first, first + c.head_dim);
          };
          const std::vector<float> mine = of(got);
          const bool spoilt =
              std::any_of(mine.begin(), mine.end(), [](float x) { return !std::isfinite(x); });
          // One infinite key may just win or lose.
          EXPECT_TRUE(spoilt == sees || (sees && which == 1 && std::isinf(bad)))
              << static_cast<int>(element) << " " << bad << " in " << which << ", row " << row;
          if (!sees) {
            expect_same_bits(mine, of(want), fmt::format("row {}", row));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::kernels::cuda
