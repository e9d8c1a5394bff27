// The model of the AMX tiles against the instructions' definitions, at their edges: what LDTILECFG
// refuses, what a load leaves in the rest of a tile, integers that wrap, rounding and flushing of
// bfloat16 products, and faults that leave everything as it was.
#include "tests/support/tile_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace baton::kernels {
namespace {

using cpu::TileConfig;
using testing::TileMachine;

// C: tile 0 [rows][16], A: tile 1 [rows][words], B: tile 2 [words][16].
TileConfig product_config(int rows, int words) {
  TileConfig config;
  cpu::set_tile(config, 0, rows, 64);
  cpu::set_tile(config, 1, rows, 4 * words);
  cpu::set_tile(config, 2, words, 64);
  return config;
}

std::uint16_t bfloat(float x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
}

TEST(TileModel, RefusesWhatTheProcessorFaultsFor) {
  TileMachine machine;
  EXPECT_STREQ(machine.zero(0), "tiles are not configured");
  TileConfig good = product_config(5, 8);
  EXPECT_EQ(machine.configure(good), nullptr);
  EXPECT_EQ(machine.zero(0), nullptr);
  EXPECT_STREQ(machine.zero(3), "a tile that is not configured");
  const auto refused = [&](auto change) {
    TileConfig config = good;
    change(config);
    return machine.configure(config) != nullptr;
  };
  EXPECT_TRUE(refused([](TileConfig& c) { c.palette = 2; }));
  EXPECT_TRUE(refused([](TileConfig& c) { c.reserved[13] = 1; }));
  EXPECT_TRUE(refused([](TileConfig& c) { c.rows[0] = 17; }));
  EXPECT_TRUE(refused([](TileConfig& c) { c.row_bytes[0] = 65; }));
  EXPECT_TRUE(refused([](TileConfig& c) { c.rows[1] = 0; }));
  EXPECT_TRUE(refused([](TileConfig& c) { c.row_bytes[1] = 0; }));
  EXPECT_TRUE(refused([](TileConfig& c) { cpu::set_tile(c, 8, 1, 4); }));
  EXPECT_EQ(machine.zero(0), nullptr);  // the good configuration still holds
  machine.release();
  EXPECT_STREQ(machine.zero(0), "tiles are not configured");
  EXPECT_EQ(machine.configure(good), nullptr);
  good.palette = 0;
  EXPECT_EQ(machine.configure(good), nullptr);
  EXPECT_STREQ(machine.zero(0), "tiles are not configured");
}

TEST(TileModel, LoadsReadRowsByStrideAndZeroTheRest) {
  std::vector<std::uint8_t> memory(16 * 100);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::uint8_t>(i % 251 + 1);
  }
  TileMachine machine;
  TileConfig config;
  cpu::set_tile(config, 0, 16, 64);
  ASSERT_EQ(machine.configure(config), nullptr);
  ASSERT_EQ(machine.load(0, memory.data(), 64), nullptr);
  EXPECT_NE(machine.row(0, 15)[63], 0);
  cpu::set_tile(config, 0, 3, 20);
  ASSERT_EQ(machine.configure(config), nullptr);
  EXPECT_EQ(machine.row(0, 0)[0], 0) << "a new configuration zeroes tiles";
  ASSERT_EQ(machine.load(0, memory.data(), 100), nullptr);
  for (std::size_t r = 0; r < 16; ++r) {
    for (std::size_t i = 0; i < 64; ++i) {
      const int want = r < 3 && i < 20 ? memory[100 * r + i] : 0;
      ASSERT_EQ(machine.row(0, static_cast<int>(r))[i], want) << r << " " << i;
    }
  }
  std::vector<std::uint8_t> out(300, 0xEE);
  ASSERT_EQ(machine.store(0, out.data(), 100), nullptr);
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out[i], i % 100 < 20 ? memory[i] : 0xEE) << i;
  }
}

TEST(TileModel, ProductsThatDoNotFitAreRefusedAndChangeNothing) {
  TileMachine machine;
  TileConfig config = product_config(5, 8);
  cpu::set_tile(config, 3, 6, 64);  // rows unlike A's
  cpu::set_tile(config, 4, 5, 60);  // columns unlike B's
  cpu::set_tile(config, 5, 7, 64);  // inner size unlike A's
  cpu::set_tile(config, 6, 5, 30);  // half a word
  ASSERT_EQ(machine.configure(config), nullptr);
  std::vector<std::uint8_t> ones(16 * 64, 1);
  for (int tile = 0; tile < 7; ++tile) {
    ASSERT_EQ(machine.load(tile, ones.data(), 64), nullptr);
  }
  EXPECT_NE(machine.multiply_bytes(3, 1, 2, true, true), nullptr);
  EXPECT_NE(machine.multiply_bytes(4, 1, 2, true, true), nullptr);
  EXPECT_NE(machine.multiply_bytes(0, 1, 5, true, true), nullptr);
  EXPECT_NE(machine.multiply_bytes(0, 6, 2, true, true), nullptr);
  EXPECT_NE(machine.multiply_bytes(0, 0, 2, true, true), nullptr);
  EXPECT_NE(machine.multiply_bytes(0, 1, 1, true, true), nullptr);
  EXPECT_NE(machine.multiply_bytes(7, 1, 2, true, true), nullptr);
  EXPECT_NE(machine.multiply_bfloats(3, 1, 2), nullptr);
  EXPECT_EQ(std::memcmp(machine.row(0, 4), ones.data(), 64), 0);
  EXPECT_EQ(machine.multiply_bytes(0, 1, 2, true, true), nullptr);
  std::int32_t sum;
  std::memcpy(&sum, machine.row(0, 4) + 60, sizeof(sum));
  EXPECT_EQ(sum, 0x01010101 + 32);
  EXPECT_EQ(machine.row(0, 5)[0], 0);
}

TEST(TileModel, ByteProductsOfEverySignAndIntegersThatWrap) {
  std::mt19937 rng(71);
  for (int round = 0; round < 20; ++round) {
    const int rows = 1 + static_cast<int>(rng() % 16);
    const int words = 1 + static_cast<int>(rng() % 16);
    std::vector<std::uint8_t> a(16 * 64);
    std::vector<std::uint8_t> b(16 * 64);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<std::uint8_t>(rng() % 3 == 0 ? 0x80 : rng());
      b[i] = static_cast<std::uint8_t>(rng() % 3 == 0 ? 0xFF : rng());
    }
    std::vector<std::int32_t> start(16 * 16);
    for (std::int32_t& x : start) {
      x = rng() % 2 == 0 ? std::numeric_limits<std::int32_t>::max()
                         : std::numeric_limits<std::int32_t>::min();
    }
    for (const bool a_signed : {false, true}) {
      for (const bool b_signed : {false, true}) {
        TileMachine machine;
        ASSERT_EQ(machine.configure(product_config(rows, words)), nullptr);
        machine.load(0, start.data(), 64);
        machine.load(1, a.data(), 64);
        machine.load(2, b.data(), 64);
        ASSERT_EQ(machine.multiply_bytes(0, 1, 2, a_signed, b_signed), nullptr);
        for (int m = 0; m < rows; ++m) {
          for (int n = 0; n < 16; ++n) {
            std::int64_t want = start[static_cast<std::size_t>(m * 16 + n)];
            for (int k = 0; k < 4 * words; ++k) {
              const int x = a[static_cast<std::size_t>(64 * m + k)];
              const int w = b[static_cast<std::size_t>(64 * (k / 4) + 4 * n + k % 4)];
              want += (a_signed && x > 127 ? x - 256 : x) * (b_signed && w > 127 ? w - 256 : w);
            }
            std::int32_t got;
            std::memcpy(&got, machine.row(0, m) + 4 * n, sizeof(got));
            ASSERT_EQ(got, static_cast<std::int32_t>(static_cast<std::uint32_t>(want)));
          }
        }
      }
    }
  }
}

// One product of 1 x (2 words) with 2 x 1: even elements e, odd elements o, start c.
float bfloat_product(std::vector<std::pair<float, float>> pairs, float start) {
  TileMachine machine;
  TileConfig config;
  const int words = static_cast<int>(pairs.size()) / 2;
  cpu::set_tile(config, 0, 1, 4);
  cpu::set_tile(config, 1, 1, 4 * words);
  cpu::set_tile(config, 2, words, 4);
  EXPECT_EQ(machine.configure(config), nullptr);
  std::vector<std::uint16_t> a;
  std::vector<std::uint16_t> b;
  for (const auto& [x, w] : pairs) {
    a.push_back(bfloat(x));
    b.push_back(bfloat(w));
  }
  machine.load(0, &start, 4);
  machine.load(1, a.data(), 64);
  machine.load(2, b.data(), 4);
  EXPECT_EQ(machine.multiply_bfloats(0, 1, 2), nullptr);
  float out;
  std::memcpy(&out, machine.row(0, 0), sizeof(out));
  return out;
}

TEST(TileModel, BfloatProductsHaveTwoChainsAndJoinTheTotalLast) {
  // In one chain 1 would be lost beside 2^24; the odd one keeps it, and so does the sum of chains.
  EXPECT_EQ(bfloat_product({{4096, 4096}, {1, 1}, {-4096, 4096}, {0, 0}}, 0), 1.0F);
  EXPECT_EQ(bfloat_product({{4096, 4096}, {-4096, 4096}, {1, 1}, {0, 0}}, 0), 0.0F);
  // Chains are summed before the total is added: 2^24 + (1 + 1) keeps what (2^24 + 1) + 1 loses.
  EXPECT_EQ(bfloat_product({{1, 1}, {1, 1}}, 16777216.0F), 16777218.0F);
  // Ties go to even: 2^24 + 1 and 2^24 + 3.
  EXPECT_EQ(bfloat_product({{1, 1}, {0, 0}}, 16777216.0F), 16777216.0F);
  EXPECT_EQ(bfloat_product({{3, 1}, {0, 0}}, 16777216.0F), 16777220.0F);
  // A step is fused: (1 + 2^-7)^2 - (1 + 2^-6) = 2^-14 needs no rounding of the product.
  EXPECT_EQ(bfloat_product({{1.015625F, -1}, {0, 0}, {1.0078125F, 1.0078125F}, {0, 0}}, 0),
            0x1p-14F);
}

TEST(TileModel, BfloatProductsTakeDenormalsForZeros) {
  const float denormal = 0x1p-130F;  // a bfloat16 of its own
  EXPECT_EQ(bfloat_product({{denormal, 0x1p100F}, {0, 0}}, 0), 0.0F);
  EXPECT_EQ(bfloat_product({{0x1p100F, denormal}, {1, 1}}, 0), 1.0F);
  EXPECT_EQ(bfloat_product({{0x1p-70F, 0x1p-70F}, {0, 0}}, 0), 0.0F);  // a denormal result
  EXPECT_EQ(bfloat_product({{0, 0}, {0, 0}}, denormal), 0.0F);         // a denormal total
  EXPECT_EQ(bfloat_product({{0x1p-63F, 0x1p-63F}, {0, 0}}, 0), 0x1p-126F);
  EXPECT_TRUE(std::signbit(testing::tile_fma(-0x1p-70F, 0x1p-70F, -0.0F)));
  EXPECT_TRUE(std::isnan(bfloat_product({{HUGE_VALF, 0}, {0, 0}}, 0)));
  EXPECT_EQ(bfloat_product({{HUGE_VALF, 1}, {0, 0}}, 1), HUGE_VALF);
  EXPECT_EQ(bfloat_product({{0x1p127F, 2}, {0, 0}}, 0), HUGE_VALF);  // overflow
}

}  // namespace
}  // namespace baton::kernels
