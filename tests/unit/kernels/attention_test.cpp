// Paged attention: against float64, and bit for bit however a sequence is cut into slices, on every
// instruction set and number of threads, with NaN in every place that no token was written to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/half.h"
#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels {
namespace {

using testing::NamedBackend;
using testing::random_floats;

struct Case {
  const char* name;
  std::uint32_t heads;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
  std::uint32_t window;
  float softcap;
  std::uint32_t block_tokens;
  KvDType dtype;
  std::uint32_t length;
};

constexpr Case kCases[] = {
    {"llama", 9, 3, 64, 0, 0, 32, KvDType::F16, 555},
    {"gemma local", 4, 1, 256, 300, 0, 32, KvDType::F16, 600},
    {"small window", 2, 2, 32, 5, 0, 16, KvDType::F32, 290},
    {"softcap", 4, 2, 48, 0, 30.0F, 48, KvDType::F16, 280},
    {"many heads a group", 14, 1, 16, 0, 0, 64, KvDType::F32, 270},
    {"odd head", 3, 3, 20, 64, 0, 32, KvDType::F16, 270},
};

// A sequence's inputs and an arena full of NaN.
class Fixture {
 public:
  Fixture(const Case& c, std::mt19937& rng) : c_(c) {
    layout_.layers = 2;
    layout_.kv_heads = c.kv_heads;
    layout_.head_dim = c.head_dim;
    layout_.block_tokens = c.block_tokens;
    layout_.dtype = c.dtype;
    q_ = random_floats(std::size_t{c.length} * q_width(), rng, 1.5F);
    k_ = random_floats(std::size_t{c.length} * kv_width(), rng);
    v_ = random_floats(std::size_t{c.length} * kv_width(), rng);
    const std::uint32_t blocks = layout_.blocks_for(c.length);
    std::vector<std::uint32_t> ids(blocks + 3);
    std::iota(ids.begin(), ids.end(), 0U);
    std::shuffle(ids.begin(), ids.end(), rng);
    for (std::uint32_t i = 0; i < blocks; ++i) {
      table_.push_back(BlockId{ids[i]});
    }
    num_blocks_ = blocks + 3;
    params_ = {1,
               c.heads,
               c.kv_heads,
               c.head_dim,
               1.0F / std::sqrt(static_cast<float>(c.head_dim)),
               c.window,
               c.softcap};
  }

  std::size_t q_width() const { return std::size_t{c_.heads} * c_.head_dim; }
  std::size_t kv_width() const { return std::size_t{c_.kv_heads} * c_.head_dim; }

  // The whole sequence in steps of `step` tokens; all rows of the result.
  std::vector<float> run(Backend& backend, std::size_t step) const {
    std::vector<std::byte> memory(2 * num_blocks_ * layout_.block_bytes(), std::byte{0xFF});
    const KvArenaView arena{memory.data(), layout_, num_blocks_};
    std::vector<float> out(c_.length * q_width(), -3.0F);
    for (std::size_t first = 0; first < c_.length; first += step) {
      const std::size_t rows = std::min<std::size_t>(step, c_.length - first);
      AttentionSlice slice;
      slice.num_rows = rows;
      slice.first_position = static_cast<std::uint32_t>(first);
      slice.blocks = std::span(table_).first(layout_.blocks_for(first + rows));
      backend.write_kv(arena,
                       params_,
                       {&slice, 1},
                       k_.data() + first * kv_width(),
                       v_.data() + first * kv_width(),
                       kv_width());
      backend.attention(arena,
                        params_,
                        {&slice, 1},
                        q_.data() + first * q_width(),
                        q_width(),
                        out.data() + first * q_width());
    }
    return out;
  }

  // Some rows of the answer in double; keys and values as the arena rounds them.
  std::vector<double> oracle_row(std::size_t position) const {
    const auto stored = [&](float x) {
      return static_cast<double>(c_.dtype == KvDType::F16 ? half_to_float(float_to_half(x)) : x);
    };
    std::vector<double> out;
    for (std::size_t h = 0; h < c_.heads; ++h) {
      const std::size_t kv = h / (c_.heads / c_.kv_heads) * c_.head_dim;
      std::vector<double> weights(c_.length, 0.0);
      double total = 0;
      for (std::size_t p = 0; p <= position; ++p) {
        if (c_.window != 0 && p + c_.window <= position) {
          continue;
        }
        double score = 0;
        for (std::size_t d = 0; d < c_.head_dim; ++d) {
          score +=
              q_[position * q_width() + h * c_.head_dim + d] * stored(k_[p * kv_width() + kv + d]);
        }
        score *= params_.scale;
        if (c_.softcap != 0) {
          score = c_.softcap * std::tanh(score / c_.softcap);
        }
        weights[p] = std::exp(score);
        total += weights[p];
      }
      for (std::size_t d = 0; d < c_.head_dim; ++d) {
        double sum = 0;
        for (std::size_t p = 0; p <= position; ++p) {
          sum += weights[p] / total * stored(v_[p * kv_width() + kv + d]);
        }
        out.push_back(sum);
      }
    }
    return out;
  }

 private:
  Case c_;
  KvLayout layout_;
  std::uint32_t num_blocks_ = 0;
  std::vector<BlockId> table_;
  AttentionParams params_;
  std::vector<float> q_, k_, v_;
};

TEST(Attention, AgreesWithFloat64) {
  std::mt19937 rng(21);
  for (const Case& c : kCases) {
    const Fixture fixture(c, rng);
    for (const NamedBackend& named : testing::all_backends()) {
      const std::vector<float> got = fixture.run(*named.backend, c.length);
      double worst = 0;
      std::size_t where = 0;
      for (std::size_t position = 0; position < c.length; position += 7) {
        const std::vector<double> want = fixture.oracle_row(position);
        for (std::size_t i = 0; i < want.size(); ++i) {
          const double error = std::fabs(got[position * fixture.q_width() + i] - want[i]);
          if (!(error <= worst)) {
            worst = error;
            where = position;
          }
        }
      }
      EXPECT_LE(worst, 1e-5) << c.name << " " << named.name << " worst at position " << where;
    }
  }
}

TEST(Attention, ARowsBitsDependOnNothingElse) {
  std::mt19937 rng(22);
  for (const Case& c : kCases) {
    const Fixture fixture(c, rng);
    std::vector<float> want;
    for (const NamedBackend& named : testing::cpu_backends()) {
      // The scalar kernels are slow: one thread walks all steps, two the whole only.
      const bool whole_only = named.name.starts_with("cpu scalar, 2");
      for (const std::size_t step : {std::size_t{c.length}, std::size_t{16}, std::size_t{1}}) {
        if (whole_only && step != c.length) {
          continue;
        }
        const std::vector<float> got = fixture.run(*named.backend, step);
        if (want.empty()) {
          want = got;
        }
        testing::expect_same_bits(
            got, want, fmt::format("{} {} in steps of {}", c.name, named.name, step));
      }
    }
  }
}

// Sequences that share a step: each as if alone.
TEST(Attention, SlicesOfDifferentSequencesDoNotMeet) {
  std::mt19937 rng(23);
  const KvLayout layout{1, 3, 64, 32, KvDType::F16};
  const AttentionParams params{0, 9, 3, 64, 0.125F, 0, 0};
  const std::size_t q_width = 9 * 64;
  const std::size_t kv_width = 3 * 64;
  // Past lengths and new rows of four sequences, each with twelve blocks.
  const std::pair<std::uint32_t, std::size_t> shapes[] = {{300, 1}, {0, 40}, {31, 2}, {350, 20}};
  std::vector<std::vector<BlockId>> tables(4);
  for (std::uint32_t i = 0; i < 48; ++i) {
    tables[i % 4].push_back(BlockId{47 - i});
  }
  for (const NamedBackend& named : testing::all_backends()) {
    std::vector<std::byte> memory(48 * layout.block_bytes(), std::byte{0xFF});
    const KvArenaView arena{memory.data(), layout, 48};
    std::vector<AttentionSlice> slices;
    std::size_t rows = 0;
    for (std::size_t s = 0; s < 4; ++s) {
      const auto [past, count] = shapes[s];
      if (past > 0) {
        const AttentionSlice before{0, past, 0, tables[s]};
        const std::vector<float> kv = random_floats(past * kv_width, rng);
        named.backend->write_kv(arena, params, {&before, 1}, kv.data(), kv.data(), kv_width);
      }
      slices.push_back({rows, count, past, tables[s]});
      rows += count;
    }
    const std::vector<float> q = random_floats(rows * q_width, rng);
    const std::vector<float> k = random_floats(rows * kv_width, rng);
    named.backend->write_kv(arena, params, slices, k.data(), k.data(), kv_width);
    std::vector<float> together(rows * q_width);
    std::vector<float> alone(rows * q_width);
    named.backend->attention(arena, params, slices, q.data(), q_width, together.data());
    for (const AttentionSlice& slice : slices) {
      named.backend->attention(arena, params, {&slice, 1}, q.data(), q_width, alone.data());
    }
    testing::expect_same_bits(together, alone, named.name);
  }
}

}  // namespace
}  // namespace baton::kernels
