// The single operations of each instruction set against the scalar ones, which define them: random
// and extreme inputs, every length of a partial vector, and no access beyond it. Here AVX-512 is
// SIMDe's and ours (tests/support/simde_avx512.h), so this also checks those.
// clang-format off
#include "tests/support/simde_avx512.h"
// clang-format on
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/isa_avx2.h"
#include "kernels/cpu/isa_avx512.h"
#include "kernels/cpu/isa_scalar.h"

namespace baton::kernels::cpu {
namespace {

using Bits = std::vector<std::uint32_t>;

constexpr float kSpecial[] = {0.0F,
                              -0.0F,
                              1.0F,
                              -1.0F,
                              1e-45F,
                              -1e-40F,
                              6e-8F,
                              65504.0F,
                              65520.0F,
                              1e-30F,
                              3e38F,
                              -3e38F,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()};

struct Inputs {
  float a[32];
  float b[32];
  float c[32];
  std::uint8_t bytes[64];
  std::uint8_t more[64];
  std::uint16_t words[32];
};

Inputs make_inputs(std::mt19937& rng) {
  Inputs in;
  std::normal_distribution<float> normal(0.0F, 3.0F);
  const auto value = [&] { return rng() % 4 == 0 ? kSpecial[rng() % 14] : normal(rng); };
  for (int i = 0; i < 32; ++i) {
    in.a[i] = value();
    in.b[i] = value();
    in.c[i] = value();
    in.words[i] = static_cast<std::uint16_t>(rng());
    if ((in.words[i] & 0x7C00) == 0x7C00) {
      in.words[i] &= 0x83FF;  // infinity and NaN are in kSpecial's turn below
    }
  }
  in.words[0] = 0x7C00;
  in.words[1] = 0xFC00;
  in.words[2] = 0x0001;
  for (int i = 0; i < 64; ++i) {
    in.bytes[i] = static_cast<std::uint8_t>(rng());
    in.more[i] = static_cast<std::uint8_t>(rng());
  }
  return in;
}

void put(Bits& out, float x) {
  // One pattern for every NaN: the sign of an invalid operation's NaN differs between scalar code
  // and constants that the compiler folds.
  out.push_back(x != x ? 0x7FC00000U : std::bit_cast<std::uint32_t>(x));
}
template <class Isa>
void put_lanes(Bits& out, typename Isa::F x) {
  float lanes[16];
  Isa::store(lanes, x);
  for (const float lane : lanes) {
    put(out, lane);
  }
}
template <class Isa>
void put_codes(Bits& out, typename Isa::W w) {
  std::uint8_t codes[64];
  Isa::store_codes(codes, w);
  out.insert(out.end(), codes, codes + 64);
}

template <class Isa>
Bits float_results(const Inputs& in) {
  Bits out;
  const auto a = Isa::load(in.a);
  const auto b = Isa::load(in.b);
  const auto c = Isa::load(in.c);
  put_lanes<Isa>(out, Isa::zero());
  put_lanes<Isa>(out, Isa::set1(in.a[5]));
  put_lanes<Isa>(out, Isa::add(a, b));
  put_lanes<Isa>(out, Isa::sub(a, b));
  put_lanes<Isa>(out, Isa::mul(a, b));
  put_lanes<Isa>(out, Isa::div(a, b));
  put_lanes<Isa>(out, Isa::fma(a, b, c));
  put_lanes<Isa>(out, Isa::max(a, b));
  put_lanes<Isa>(out, Isa::min(a, b));
  put_lanes<Isa>(out, Isa::neg(a));
  put_lanes<Isa>(out, Isa::load(in.words));
  put_lanes<Isa>(out, Isa::load_bfloat(in.words));
  put_lanes<Isa>(out, Isa::load_u8(in.bytes));
  put_lanes<Isa>(out, Isa::load_s8(in.bytes));
  put_lanes<Isa>(out, Isa::add_exponent(Isa::set1(1.5F), Isa::bits(Isa::load(in.a))));
  put_lanes<Isa>(out, Isa::to_float(Isa::bits(a)));
  put_lanes<Isa>(out,
                 Isa::to_float(Isa::template shift_left<5>(
                     Isa::iset1(static_cast<std::int32_t>(in.bytes[0]) - 128))));
  put(out, Isa::sum_tree(b));
  put(out, Isa::largest(Isa::load_u8(in.more)));
  typename Isa::F x;
  typename Isa::F y;
  Isa::split_pairs(a, b, x, y);
  put_lanes<Isa>(out, x);
  put_lanes<Isa>(out, y);
  Isa::join_pairs(a, b, x, y);
  put_lanes<Isa>(out, x);
  put_lanes<Isa>(out, y);
  std::uint16_t halves[16];
  Isa::store_half(halves, a);
  out.insert(out.end(), halves, halves + 16);
  for (std::size_t low = 0; low <= 16; ++low) {
    for (std::size_t high = low; high <= 16; ++high) {
      put_lanes<Isa>(out, Isa::select(Isa::range(low, high), a, b));
    }
  }
  return out;
}

template <class Isa>
Bits code_results(const Inputs& in) {
  Bits out;
  const auto w = Isa::load_codes(in.bytes);
  const auto top = Isa::load_codes(in.more);
  const auto low = Isa::low_nibbles(w);
  put_codes<Isa>(out, low);
  put_codes<Isa>(out, Isa::high_nibbles(w));
  put_codes<Isa>(out, Isa::with_fifth_bits(low, in.more));
  put_codes<Isa>(out, Isa::template with_top_bits<0>(low, top));
  put_codes<Isa>(out, Isa::template with_top_bits<1>(low, top));
  put_codes<Isa>(out, Isa::template with_top_bits<2>(low, top));
  put_codes<Isa>(out, Isa::template with_top_bits<3>(low, top));
  // Activations are never -128.
  std::uint32_t activation = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t code = in.more[i] == 0x80 ? 0x81 : in.more[i];
    activation |= code << (8 * i);
  }
  const auto start = Isa::iset1(-12345);
  const auto six = Isa::template with_top_bits<1>(low, top);
  put_lanes<Isa>(out, Isa::to_float(Isa::template dot4<false>(start, six, activation)));
  // A wide dot of signed-byte instruction sets has the offset of 128 in it, and no start.
  auto wide = Isa::template dot4<true>(Isa::iset1(0), w, activation);
  float lanes[16];
  Isa::store(lanes, Isa::to_float(wide));
  std::int32_t offset = 0;
  for (int i = 0; i < 4; ++i) {
    offset += 128 * static_cast<std::int8_t>(activation >> (8 * i));
  }
  for (const float lane : lanes) {
    put(out, lane + static_cast<float>(Isa::kSignedBytes ? offset : 0));
  }
  out.push_back(Isa::largest_magnitude(in.a));
  std::int8_t codes[32];
  std::memcpy(codes, in.bytes, 32);
  out.push_back(static_cast<std::uint32_t>(Isa::sum16(codes)));
  out.push_back(static_cast<std::uint32_t>(Isa::sum16(codes + 16)));
  float ordinary[32];
  for (int i = 0; i < 32; ++i) {
    ordinary[i] = (static_cast<float>(in.bytes[i]) - 127.5F) * 0.996F;  // with ties at .5
  }
  ordinary[3] = 2.5F;
  ordinary[4] = -3.5F;
  ordinary[5] = 0.5F;
  for (const float factor : {0.0F, 1.0F, 0.5F, 0.3333F}) {
    Isa::quantise32(ordinary, factor, codes);
    out.insert(out.end(), codes, codes + 32);
  }
  return out;
}

void put_short(Bits& out, const std::int16_t (&codes)[16]) {
  for (const std::int16_t code : codes) {
    out.push_back(static_cast<std::uint16_t>(code));
  }
}
template <class Isa>
void put_ints(Bits& out, typename Isa::I x) {
  std::int32_t lanes[16];
  Isa::istore(lanes, x);
  out.insert(out.end(), lanes, lanes + 16);
}

// What attention does with 16-bit codes.
template <class Isa>
Bits pair_results(const Inputs& in) {
  Bits out;
  std::int32_t pairs[16];
  std::memcpy(pairs, in.bytes, sizeof(pairs));
  const auto x = Isa::iload(pairs);
  std::int32_t pair;
  std::memcpy(&pair, in.more, sizeof(pair));
  put_ints<Isa>(out, Isa::dot2(Isa::iset1(99), x, pair == INT32_MIN ? 0 : pair));
  put_ints<Isa>(out, Isa::byte_pairs(in.bytes, in.more));
  std::int16_t stored[32];
  std::memcpy(stored, in.words, sizeof(stored));
  put_ints<Isa>(out, Isa::short_pairs(stored, stored + 16));
  put_ints<Isa>(out, Isa::magnitudes(Isa::iset1(0x40000000), Isa::load(in.a)));
  out.push_back(Isa::largest_lane(Isa::magnitudes(Isa::iset1(0), Isa::load(in.a))));
  out.push_back(Isa::largest_lane(Isa::magnitudes(Isa::hzero(), in.words)));
  put_lanes<Isa>(out, Isa::to_float(Isa::magnitudes(Isa::hzero(), in.words)));
  put_lanes<Isa>(out, Isa::as_float(Isa::magnitudes(Isa::iset1(0), Isa::load(in.b))));
  put_lanes<Isa>(out, Isa::load_e4m3(in.bytes));
  float codes[32];
  for (int i = 0; i < 32; ++i) {
    codes[i] = (static_cast<float>(in.words[i]) - 32767.0F) * 0.5F;  // with ties at .5
  }
  put_ints<Isa>(out, Isa::pack_pairs(Isa::load(codes), Isa::load(codes + 16)));
  std::int16_t shorts[16];
  Isa::store_short(shorts, Isa::load(codes));
  put_short(out, shorts);
  codes[3] = std::numeric_limits<float>::quiet_NaN();
  codes[20] = std::numeric_limits<float>::quiet_NaN();
  put_ints<Isa>(out, Isa::pack_pairs(Isa::load(codes), Isa::load(codes + 16)));
  return out;
}

// Loads and stores of n lanes at the end of a buffer behind which nothing may be touched.
template <class Isa>
Bits partial_results(const Inputs& in) {
  Bits out;
  for (std::size_t n = 0; n <= 16; ++n) {
    put_lanes<Isa>(out, Isa::load_n(in.a, n));
    put_lanes<Isa>(out, Isa::load_n(in.words, n));
    float kept[17];
    for (float& x : kept) {
      x = 77.0F;
    }
    Isa::store_n(kept, Isa::load(in.b), n);
    for (const float x : kept) {
      put(out, x);
    }
  }
  return out;
}

template <class Isa>
void expect_as_scalar(const char* name) {
  std::mt19937 rng(41);
  for (int i = 0; i < 300; ++i) {
    const Inputs in = make_inputs(rng);
    ASSERT_EQ(float_results<Isa>(in), float_results<Scalar>(in)) << name << " round " << i;
    ASSERT_EQ(code_results<Isa>(in), code_results<Scalar>(in)) << name << " round " << i;
    ASSERT_EQ(pair_results<Isa>(in), pair_results<Scalar>(in)) << name << " round " << i;
    ASSERT_EQ(partial_results<Isa>(in), partial_results<Scalar>(in)) << name << " round " << i;
  }
}

TEST(IsaOps, Avx2ComputesWhatScalarDoes) {
  if (!has_avx2()) {
    GTEST_SKIP() << "this machine has no AVX2";
  }
  expect_as_scalar<Avx2>("avx2");
}

TEST(IsaOps, EmulatedAvx512ComputesWhatScalarDoes) {
  if (!has_avx2()) {
    GTEST_SKIP() << "this machine has no AVX2";
  }
  expect_as_scalar<Avx512>("avx512");
}

}  // namespace
}  // namespace baton::kernels::cpu
