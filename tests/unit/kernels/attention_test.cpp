// Paged attention: against float64, and bit for bit however a sequence is cut into slices, on every
// instruction set and number of threads, with NaN in every place that no token was written to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/half.h"
#include "kernels/kv_codes.h"
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
    {"llama i8", 9, 3, 64, 0, 0, 32, KvDType::I8, 555},
    {"llama f8", 6, 2, 64, 0, 0, 16, KvDType::F8, 300},
    {"gemma local", 4, 1, 256, 300, 0, 32, KvDType::F16, 600},
    {"gemma i8", 4, 1, 256, 100, 0, 64, KvDType::I8, 300},
    {"small window", 2, 2, 32, 5, 0, 16, KvDType::F32, 290},
    {"small window f8", 2, 2, 96, 5, 0, 16, KvDType::F8, 290},
    {"softcap", 4, 2, 48, 0, 30.0F, 48, KvDType::F16, 280},
    {"softcap i8", 4, 2, 80, 0, 30.0F, 48, KvDType::I8, 280},
    {"many heads a group", 14, 1, 16, 0, 0, 64, KvDType::F32, 270},
    {"a group beyond a job", 200, 1, 16, 0, 0, 32, KvDType::F16, 20},
    {"128", 2, 1, 128, 0, 0, 32, KvDType::F16, 270},
    {"odd head", 3, 3, 20, 64, 0, 32, KvDType::F16, 270},
    {"odd head i8", 3, 3, 20, 64, 0, 32, KvDType::I8, 270},
    {"odd head f8", 3, 1, 20, 0, 0, 32, KvDType::F8, 270},
    {"wide head", 1, 1, 1024, 0, 0, 16, KvDType::F32, 40},
    {"llama i16", 9, 3, 64, 0, 0, 32, KvDType::I16, 555},
    {"softcap i16", 4, 2, 80, 0, 30.0F, 16, KvDType::I16, 280},
    {"odd head i16", 3, 3, 20, 64, 0, 32, KvDType::I16, 270},
    {"wide head i16", 1, 1, 512, 0, 0, 16, KvDType::I16, 40},
    {"a head a group i16", 2, 2, 32, 0, 0, 48, KvDType::I16, 270},
    {"five heads a group i16", 5, 1, 48, 100, 0, 16, KvDType::I16, 270},
};

// Values and weights are rounded to 12 bits where the arena has no codes of its own.
constexpr double kTolerance = 1.5e-3;

// `x` as an arena of this type gives it back.
void round_row(KvDType dtype, float* x, std::size_t n) {
  std::vector<std::int8_t> ints(n);
  std::vector<std::int16_t> shorts(n);
  std::vector<std::uint8_t> floats(n);
  const float scale = dtype == KvDType::I8    ? to_int8(x, n, ints.data())
                      : dtype == KvDType::I16 ? to_int16(x, n, shorts.data())
                      : dtype == KvDType::F8  ? to_e4m3(x, n, floats.data())
                                              : 1.0F;
  for (std::size_t d = 0; d < n; ++d) {
    x[d] = dtype == KvDType::I8    ? static_cast<float>(ints[d]) * scale
           : dtype == KvDType::I16 ? static_cast<float>(shorts[d]) * scale
           : dtype == KvDType::F8  ? e4m3_to_float(floats[d]) * scale
           : dtype == KvDType::F16 ? half_to_float(float_to_half(x[d]))
                                   : x[d];
  }
}

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
    stored_k_ = k_;
    stored_v_ = v_;
    for (std::size_t at = 0; at < k_.size(); at += c.head_dim) {
      round_row(c.dtype, stored_k_.data() + at, c.head_dim);
      round_row(c.dtype, stored_v_.data() + at, c.head_dim);
    }
    const std::uint32_t blocks = layout_.blocks_for(c.length);
    std::vector<std::uint32_t> ids(blocks + 3);
    std::iota(ids.begin(), ids.end(), 0U);
    std::shuffle(ids.begin(), ids.end(), rng);
    for (std::uint32_t i = 0; i < blocks; ++i) {
      table_.push_back(BlockId{ids[i]});
    }
    num_blocks_ = blocks + 3;
    params_ = {.layer = 1,
               .heads = c.heads,
               .kv_heads = c.kv_heads,
               .head_dim = c.head_dim,
               .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
               .window = c.window,
               .softcap = c.softcap};
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

  // A row of the answer in double.
  std::vector<double> oracle_row(std::size_t position) const {
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
          score += static_cast<double>(q_[position * q_width() + h * c_.head_dim + d]) *
                   stored_k_[p * kv_width() + kv + d];
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
          sum += weights[p] / total * stored_v_[p * kv_width() + kv + d];
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
  std::vector<float> stored_k_, stored_v_;  // as the arena rounds them
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
      EXPECT_LE(worst, kTolerance) << c.name << " " << named.name << " worst at position " << where;
    }
  }
}

TEST(Attention, ARowsBitsDependOnNothingElse) {
  std::mt19937 rng(22);
  for (const Case& c : kCases) {
    const Fixture fixture(c, rng);
    std::vector<float> want;
    for (const NamedBackend& named : testing::cpu_backends()) {
      // The scalar kernels are slow: one thread walks all steps, two the whole only. Emulated ones
      // are slower: 8 rows a step are few enough to go by chunks.
      const bool scalar_again = named.name.starts_with("cpu scalar, 2");
      const bool emulated = named.name.find("emulated") != std::string::npos;
      for (const std::size_t step : {std::size_t{c.length}, std::size_t{8}, std::size_t{1}}) {
        if ((scalar_again && step != c.length) || (emulated && step == 1)) {
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
  const AttentionParams params{.heads = 9, .kv_heads = 3, .head_dim = 64, .scale = 0.125F};
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

// Alone a sequence's few rows go by chunks, which many sequences in a step need not: the same bits.
TEST(Attention, ManySequencesInAStepAreEachAsIfAlone) {
  constexpr std::size_t kSequences = 12;
  constexpr std::uint32_t kBlocks = 18;  // each
  std::mt19937 rng(24);
  const AttentionParams params{.heads = 6, .kv_heads = 2, .head_dim = 32, .scale = 0.18F};
  const std::size_t q_width = 6 * 32;
  const std::size_t kv_width = 2 * 32;
  for (const KvDType dtype : {KvDType::I16, KvDType::I8, KvDType::F16}) {
    const KvLayout layout{1, 2, 32, 32, dtype};
    std::vector<std::vector<BlockId>> tables(kSequences);
    for (std::uint32_t i = 0; i < kSequences * kBlocks; ++i) {
      tables[i % kSequences].push_back(BlockId{i});
    }
    std::vector<AttentionSlice> slices;
    std::size_t rows = 0;
    for (std::size_t s = 0; s < kSequences; ++s) {
      const std::size_t count = 1 + s % 2;
      slices.push_back({rows, count, static_cast<std::uint32_t>(250 + 25 * s), tables[s]});
      rows += count;
    }
    const std::vector<float> q = random_floats(rows * q_width, rng);
    const std::vector<float> kv = random_floats(kBlocks * 32 * kv_width, rng);
    std::vector<float> want;
    for (const NamedBackend& named : testing::cpu_backends()) {
      std::vector<std::byte> memory(kSequences * kBlocks * layout.block_bytes(), std::byte{0xFF});
      const KvArenaView arena{memory.data(), layout, kSequences * kBlocks};
      for (const AttentionSlice& slice : slices) {
        const AttentionSlice all{0, slice.first_position + slice.num_rows, 0, slice.blocks};
        named.backend->write_kv(arena, params, {&all, 1}, kv.data(), kv.data(), kv_width);
      }
      std::vector<float> together(rows * q_width);
      std::vector<float> alone(rows * q_width);
      named.backend->attention(arena, params, slices, q.data(), q_width, together.data());
      for (const AttentionSlice& slice : slices) {
        named.backend->attention(arena, params, {&slice, 1}, q.data(), q_width, alone.data());
      }
      testing::expect_same_bits(together, alone, named.name);
      if (want.empty()) {
        want = together;
      }
      testing::expect_same_bits(together, want, named.name);
    }
  }
}

// A token whose key or value holds what is no number spoils the rows that see it, and no other.
TEST(Attention, HostileValuesStayWithTheRowsThatSeeThem) {
  std::mt19937 rng(24);
  const float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity()};
  constexpr std::uint32_t kLength = 40;
  constexpr std::uint32_t kAt = 21;
  constexpr std::uint32_t kWindow = 8;
  constexpr std::size_t kDim = 32;
  for (const KvDType dtype : {KvDType::F32, KvDType::F16, KvDType::I16, KvDType::I8, KvDType::F8}) {
    const KvLayout layout{1, 1, kDim, 16, dtype};
    const AttentionParams params{
        .heads = 1, .kv_heads = 1, .head_dim = kDim, .scale = 0.2F, .window = kWindow};
    const std::vector<BlockId> table{BlockId{2}, BlockId{0}, BlockId{1}};
    const std::vector<float> q = random_floats(kLength * kDim, rng);
    const std::vector<float> k = random_floats(kLength * kDim, rng);
    const std::vector<float> v = random_floats(kLength * kDim, rng);
    const AttentionSlice slice{0, kLength, 0, table};
    for (const NamedBackend& named : testing::all_backends()) {
      const auto attend = [&](std::vector<float> q, std::vector<float> k, std::vector<float> v) {
        std::vector<std::byte> memory(3 * layout.block_bytes(), std::byte{0xFF});
        const KvArenaView arena{memory.data(), layout, 3};
        std::vector<float> out(q.size());
        named.backend->write_kv(arena, params, {&slice, 1}, k.data(), v.data(), kDim);
        named.backend->attention(arena, params, {&slice, 1}, q.data(), kDim, out.data());
        return out;
      };
      const std::vector<float> clean = attend(q, k, v);
      for (const float bad : kBad) {
        for (int which = 0; which < 3; ++which) {
          std::vector<float> inputs[] = {q, k, v};
          inputs[which][kAt * kDim + 5] = bad;
          const std::vector<float> out = attend(inputs[0], inputs[1], inputs[2]);
          for (std::uint32_t row = 0; row < kLength; ++row) {
            const bool sees = which == 0 ? row == kAt : row >= kAt && row < kAt + kWindow;
            const auto at = static_cast<std::ptrdiff_t>(row * kDim);
            const bool same =
                std::equal(out.begin() + at, out.begin() + at + kDim, clean.begin() + at);
            const bool spoilt = std::any_of(out.begin() + at, out.begin() + at + kDim, [](float x) {
              return !std::isfinite(x);
            });
            // With float elements one infinite key may just win or lose.
            if (sees && !(which == 1 && std::isinf(bad) && !spoilt)) {
              EXPECT_TRUE(spoilt) << named.name << " " << to_string(dtype) << " row " << row
                                  << " input " << which << " " << bad;
            } else if (!sees) {
              EXPECT_TRUE(same) << named.name << " " << to_string(dtype) << " row " << row;
            }
          }
        }
      }
    }
  }
}

// Zeros, numbers too small to scale and the largest there are: finite answers.
TEST(Attention, ExtremesAreNumbers) {
  constexpr std::size_t kDim = 16;
  constexpr std::uint32_t kLength = 20;
  for (const KvDType dtype : {KvDType::F32, KvDType::F16, KvDType::I16, KvDType::I8, KvDType::F8}) {
    for (const float x : {0.0F, 1e-45F, 1e-38F, 1e-30F, 6e4F}) {
      const KvLayout layout{1, 1, kDim, 16, dtype};
      const AttentionParams params{.heads = 1, .kv_heads = 1, .head_dim = kDim, .scale = 1.0F};
      const std::vector<BlockId> table{BlockId{0}, BlockId{1}};
      const AttentionSlice slice{0, kLength, 0, table};
      const std::vector<float> in(kLength * kDim, x);
      for (const NamedBackend& named : testing::all_backends()) {
        std::vector<std::byte> memory(2 * layout.block_bytes(), std::byte{0xFF});
        const KvArenaView arena{memory.data(), layout, 2};
        std::vector<float> out(in.size());
        named.backend->write_kv(arena, params, {&slice, 1}, in.data(), in.data(), kDim);
        named.backend->attention(arena, params, {&slice, 1}, in.data(), kDim, out.data());
        for (const float y : out) {
          ASSERT_NEAR(y, x, std::max(1e-3F * x, 1e-7F)) << named.name << " " << to_string(dtype);
        }
      }
    }
  }
}

// All backends must write the same bytes: blocks travel between nodes.
TEST(Attention, AllBackendsWriteTheSameBlocks) {
  std::mt19937 rng(25);
  constexpr std::size_t kLength = 50;
  for (const KvDType dtype : {KvDType::F32, KvDType::F16, KvDType::I16, KvDType::I8, KvDType::F8}) {
    const KvLayout layout{1, 2, 40, 32, dtype};
    const AttentionParams params{.heads = 2, .kv_heads = 2, .head_dim = 40, .scale = 1.0F};
    const std::vector<BlockId> table{BlockId{1}, BlockId{0}};
    const AttentionSlice slice{0, kLength, 0, table};
    const std::vector<float> k = random_floats(kLength * 80, rng);
    const std::vector<float> v = random_floats(kLength * 80, rng);
    std::vector<std::byte> want;
    for (const NamedBackend& named : testing::all_backends()) {
      std::vector<std::byte> memory(2 * layout.block_bytes(), std::byte{0xFF});
      named.backend->write_kv(
          {memory.data(), layout, 2}, params, {&slice, 1}, k.data(), v.data(), 80);
      if (want.empty()) {
        want = memory;
      }
      EXPECT_TRUE(memory == want) << named.name << " " << to_string(dtype);
    }
  }
}

}  // namespace
}  // namespace baton::kernels
