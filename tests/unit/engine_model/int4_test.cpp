// GPTQ and AWQ matrices against plain arithmetic: scale * (code - zero), value by value, exactly.
#include "engine/model/int4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <random>

#include "kernels/gguf_blocks.h"
#include "kernels/half.h"

namespace baton::engine {
namespace {

using kernels::DType;
using ::testing::HasSubstr;

// A matrix of [rows][cols] as both formats mean it, and its packed forms.
struct Matrix {
  std::uint64_t rows = 24;
  std::uint64_t cols = 256;
  std::uint64_t groups = 4;
  std::vector<std::uint32_t> code;   // [rows][cols]
  std::vector<std::uint32_t> zero;   // [groups][rows], 0 to 15
  std::vector<std::uint16_t> scale;  // [groups][rows], F16
  std::vector<std::uint32_t> g_idx;  // [cols]
  // Packed.
  std::vector<std::uint32_t> qweight, qzeros;

  float value(std::uint64_t row, std::uint64_t col) const {
    const std::uint64_t at = g_idx[col] * rows + row;
    return kernels::half_to_float(scale[at]) *
           (static_cast<float>(code[row * cols + col]) - static_cast<float>(zero[at]));
  }
};

Matrix random_matrix(std::uint64_t groups, bool symmetric, bool shuffled) {
  std::mt19937 random(7);
  Matrix m;
  m.groups = groups;
  for (std::uint64_t i = 0; i < m.rows * m.cols; ++i) {
    m.code.push_back(random() % 16);
  }
  for (std::uint64_t i = 0; i < m.groups * m.rows; ++i) {
    m.zero.push_back(symmetric ? 8 : random() % 16);
    m.scale.push_back(kernels::float_to_half(0.001F + 0.01F * static_cast<float>(random() % 100)));
  }
  for (std::uint64_t k = 0; k < m.cols; ++k) {
    m.g_idx.push_back(static_cast<std::uint32_t>(k / (m.cols / m.groups)));
  }
  if (shuffled) {
    std::shuffle(m.g_idx.begin(), m.g_idx.end(), random);
  }
  return m;
}

void pack_gptq(Matrix& m, bool less_one) {
  m.qweight.assign(m.cols / 8 * m.rows, 0);
  m.qzeros.assign(m.groups * m.rows / 8, 0);
  for (std::uint64_t row = 0; row < m.rows; ++row) {
    for (std::uint64_t k = 0; k < m.cols; ++k) {
      m.qweight[k / 8 * m.rows + row] |= m.code[row * m.cols + k] << (4 * (k % 8));
    }
    for (std::uint64_t g = 0; g < m.groups; ++g) {
      const std::uint32_t stored = (m.zero[g * m.rows + row] + (less_one ? 15 : 0)) % 16;
      m.qzeros[g * (m.rows / 8) + row / 8] |= stored << (4 * (row % 8));
    }
  }
}

void pack_awq(Matrix& m) {
  constexpr std::array<std::uint64_t, 8> kOrder{0, 2, 4, 6, 1, 3, 5, 7};
  m.qweight.assign(m.cols * m.rows / 8, 0);
  m.qzeros.assign(m.groups * m.rows / 8, 0);
  for (std::uint64_t word = 0; word < m.rows / 8; ++word) {
    for (unsigned nibble = 0; nibble < 8; ++nibble) {
      const std::uint64_t row = word * 8 + kOrder[nibble];
      for (std::uint64_t k = 0; k < m.cols; ++k) {
        m.qweight[k * (m.rows / 8) + word] |= m.code[row * m.cols + k] << (4 * nibble);
      }
      for (std::uint64_t g = 0; g < m.groups; ++g) {
        m.qzeros[g * (m.rows / 8) + word] |= m.zero[g * m.rows + row] << (4 * nibble);
      }
    }
  }
}

template <class T>
SafeTensor view(SafeType type, const std::vector<T>& data, std::vector<std::uint64_t> shape) {
  return {type, std::move(shape), std::as_bytes(std::span(data))};
}

// The tensors of a packed matrix and the parts that point to them.
struct Tensors {
  Tensors(const Matrix& m, bool awq, bool with_groups)
      : qweight(awq ? view(SafeType::I32, m.qweight, {m.cols, m.rows / 8})
                    : view(SafeType::I32, m.qweight, {m.cols / 8, m.rows})),
        qzeros(view(SafeType::I32, m.qzeros, {m.groups, m.rows / 8})),
        scales(view(SafeType::F16, m.scale, {m.groups, m.rows})),
        g_idx(view(SafeType::I32, m.g_idx, {m.cols})) {
    parts = {&qweight, &qzeros, &scales, with_groups ? &g_idx : nullptr, "f: m"};
  }
  SafeTensor qweight, qzeros, scales, g_idx;
  Int4Parts parts;
};

Int4Scheme scheme_of(const Matrix& m, bool awq, bool less_one) {
  return {awq ? Int4Scheme::Method::Awq : Int4Scheme::Method::Gptq,
          less_one,
          m.groups == 1 ? 0 : m.cols / m.groups};
}

std::vector<float> dequantised(const Int4Plan& plan, const std::byte* data) {
  std::vector<float> out(plan.rows * plan.cols);
  const std::size_t row = kernels::row_bytes(plan.dtype, plan.cols);
  for (std::uint64_t r = 0; r < plan.rows; ++r) {
    kernels::dequantise_row(plan.dtype, data + r * row, plan.cols, out.data() + r * plan.cols);
  }
  return out;
}

struct Case {
  std::uint64_t groups;
  bool symmetric, awq, less_one, with_groups, shuffled;
  DType expected;
};

TEST(Int4, EveryValueIsExact) {
  const std::vector<Case> cases{
      {4, true, false, true, true, false, DType::Q4_0},
      {4, true, false, false, false, false, DType::Q4_0},
      {4, false, false, true, true, false, DType::Q5_0},
      {8, false, false, false, true, false, DType::Q5_0},  // groups of 32
      {1, false, false, true, false, false, DType::Q5_0},  // one group a row
      {1, true, false, true, true, false, DType::Q4_0},
      {4, false, true, false, false, false, DType::Q5_0},
      {2, true, true, false, false, false, DType::Q4_0},
      {4, true, false, true, true, true, DType::F16},  // desc_act
      {4, false, false, true, true, true, DType::F16},
  };
  for (const Case& c : cases) {
    Matrix m = random_matrix(c.groups, c.symmetric, c.shuffled);
    c.awq ? pack_awq(m) : pack_gptq(m, c.less_one);
    const Tensors tensors(m, c.awq, c.with_groups);
    const Int4Scheme scheme = scheme_of(m, c.awq, c.less_one);
    const auto plan = plan_int4(scheme, tensors.parts);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->dtype, c.expected);
    const auto data = convert_int4(scheme, tensors.parts, *plan, {});
    ASSERT_TRUE(data) << data.error().message;
    const auto values = dequantised(*plan, data->get());
    for (std::uint64_t row = 0; row < m.rows; ++row) {
      for (std::uint64_t k = 0; k < m.cols; ++k) {
        float expected = m.value(row, k);
        if (plan->dtype == DType::F16) {
          expected = kernels::half_to_float(kernels::float_to_half(expected));
        }
        ASSERT_EQ(values[row * m.cols + k], expected)
            << "row " << row << " input " << k << " groups " << c.groups << " awq " << c.awq;
      }
    }
  }
}

TEST(Int4, RowsMayComeInAnotherOrder) {
  Matrix m = random_matrix(4, false, false);
  pack_awq(m);
  const Tensors tensors(m, true, false);
  const Int4Scheme scheme = scheme_of(m, true, false);
  const auto plan = plan_int4(scheme, tensors.parts);
  ASSERT_TRUE(plan);
  std::vector<std::uint32_t> from;
  for (std::uint32_t row = 0; row < m.rows; ++row) {
    from.push_back((row * 5 + 3) % static_cast<std::uint32_t>(m.rows));
  }
  const auto data = convert_int4(scheme, tensors.parts, *plan, from);
  ASSERT_TRUE(data);
  const auto values = dequantised(*plan, data->get());
  for (std::uint64_t row = 0; row < m.rows; ++row) {
    EXPECT_EQ(values[row * m.cols + 77], m.value(from[row], 77));
  }
}

TEST(Int4, WrongPartsAreRefusedWithTheirPlace) {
  Matrix m = random_matrix(4, false, false);
  pack_gptq(m, true);
  const Int4Scheme scheme = scheme_of(m, false, true);
  const auto refused = [&](const std::function<void(Tensors&)>& change, const char* message) {
    Tensors tensors(m, false, true);
    change(tensors);
    const auto plan = plan_int4(scheme, tensors.parts);
    ASSERT_FALSE(plan) << message;
    EXPECT_THAT(plan.error().message, HasSubstr("f: m."));
    EXPECT_THAT(plan.error().message, HasSubstr(message));
  };
  refused([](Tensors& t) { t.parts.scales = nullptr; }, "scales: the tensor is missing");
  refused([](Tensors& t) { t.qweight.type = SafeType::F32; }, "qweight: must be I32, is F32");
  refused([](Tensors& t) { t.qweight.shape = {32}; }, "two dimensions");
  refused([](Tensors& t) { t.qweight.shape = {1ULL << 62, 24}; }, "overflows");
  refused([](Tensors& t) { t.qweight.shape = {32, 20}; }, "multiples of 8 and 32");
  refused([](Tensors& t) { t.qweight.shape = {20, 24}; }, "group size");
  refused([](Tensors& t) { t.scales.shape = {3, 24}; }, "scales: shape [3, 24], expected [4, 24]");
  refused([](Tensors& t) { t.scales.type = SafeType::I32; }, "scales: must be F16, is I32");
  refused([](Tensors& t) { t.qzeros.shape = {4, 24}; }, "qzeros: shape [4, 24], expected [4, 3]");
  refused([](Tensors& t) { t.g_idx.data = t.g_idx.data.first(16); }, "one number for each of 256");
  Matrix far = m;
  far.g_idx[9] = 4;
  const Tensors tensors(far, false, true);
  const auto plan = plan_int4(scheme, tensors.parts);
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message, HasSubstr("g_idx: input 9 is in group 4 of 4"));
}

TEST(Int4, AScaleThatIsNoF16IsRefused) {
  Matrix m = random_matrix(4, false, false);
  pack_gptq(m, true);
  const Int4Scheme scheme = scheme_of(m, false, true);
  m.scale[30] = 0x7C00;  // infinity
  const Tensors tensors(m, false, true);
  const auto plan = plan_int4(scheme, tensors.parts);
  ASSERT_TRUE(plan);
  const auto data = convert_int4(scheme, tensors.parts, *plan, {});
  ASSERT_FALSE(data);
  EXPECT_THAT(data.error().message, HasSubstr("output 6 of group 1"));
}

}  // namespace
}  // namespace baton::engine
