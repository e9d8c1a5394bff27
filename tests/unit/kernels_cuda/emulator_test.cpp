// The emulator itself: what threads of a block and of a warp do together, what it refuses, and that
// a forgotten barrier shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "tests/support/cuda_emulator.h"

namespace baton::kernels::cuda {
namespace {

using baton::testing::launch;
using baton::testing::run_grid;
using baton::testing::ThreadOrder;

struct Floats {
  float values[256];
};

// Each block turns its 64 numbers round.
struct ReverseArguments {
  const float* in;
  float* out;
  bool with_barrier;
};
void reverse(ReverseArguments a) {
  BATON_SHARED(Floats, shared);
  const unsigned i = thread_index();
  const unsigned first = block_index() * block_threads();
  shared.values[i] = a.in[first + i];
  if (a.with_barrier) {
    sync_threads();
  }
  a.out[first + i] = shared.values[block_threads() - 1 - i];
}

std::vector<float> reversed(bool with_barrier, ThreadOrder order) {
  std::vector<float> in(192);
  std::iota(in.begin(), in.end(), 1.0F);
  std::vector<float> out(in.size());
  launch(reverse,
         {.x = 3, .threads = 64},
         ReverseArguments{in.data(), out.data(), with_barrier},
         order);
  return out;
}

TEST(CudaEmulator, BarriersLetThreadsSeeEachOther) {
  std::vector<float> want;
  for (int block = 0; block < 3; ++block) {
    for (int i = 0; i < 64; ++i) {
      want.push_back(static_cast<float>(64 * block + 64 - i));
    }
  }
  EXPECT_EQ(reversed(true, ThreadOrder::Ascending), want);
  EXPECT_EQ(reversed(true, ThreadOrder::Descending), want);
}

TEST(CudaEmulator, AForgottenBarrierShows) {
  const std::vector<float> out = reversed(false, ThreadOrder::Ascending);
  EXPECT_TRUE(std::isnan(out[0])) << "shared memory that nobody wrote is no number";
  EXPECT_EQ(out[63], 1.0F);
  EXPECT_EQ(reversed(false, ThreadOrder::Descending)[0], 64.0F);
}

TEST(CudaEmulator, ShufflesAndBallotsJoinAWarp) {
  std::vector<float> sums(64);
  std::vector<std::uint32_t> votes(64);
  std::vector<std::uint64_t> wide(64);
  run_grid({.threads = 64}, [&] {
    const unsigned i = thread_index();
    sums[i] = warp_sum(static_cast<float>(i));
    votes[i] = ballot(i % 3 == 0);
    wide[i] = shuffle(std::uint64_t{i} << 40, 5);
  });
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(sums[i], i < 32 ? 496.0F : 1520.0F);
    EXPECT_EQ(votes[i], i < 32 ? 0x49249249U : 0x92492492U);
    EXPECT_EQ(wide[i], std::uint64_t{i < 32 ? 5U : 37U} << 40);
  }
}

TEST(CudaEmulator, EachBlockHasItsPlaceInTheGrid) {
  std::vector<unsigned> seen;
  run_grid({.x = 2, .y = 2, .z = 2, .threads = 32}, [&] {
    if (thread_index() == 0) {
      seen.push_back(block_index() + 10 * block_index_y() + 100 * block_index_z());
      EXPECT_EQ(grid_blocks(), 2U);
    }
  });
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 10, 11, 100, 101, 110, 111));
}

TEST(CudaEmulator, CopiesLandWhenTheyAreWaitedFor) {
  struct alignas(16) Four {
    float values[4];
  };
  const std::vector<Four> from{{{1, 2, 3, 4}}, {{5, 6, 7, 8}}};
  std::vector<float> before(32);
  std::vector<float> after(32);
  std::vector<float> unwanted(32);
  run_grid({.threads = 32, .dynamic_shared = 32 * 3 * sizeof(Four)}, [&] {
    Four* own = dynamic_shared<Four>() + thread_index() * 3;
    copy_async16(own, &from[0]);
    copy_async16(own + 2, nullptr, false);
    commit_copies();
    copy_async16(own + 1, &from[1]);
    commit_copies();
    before[thread_index()] = own[0].values[3];
    wait_copies<1>();
    after[thread_index()] = own[0].values[3];
    unwanted[thread_index()] = own[2].values[0];
    EXPECT_TRUE(std::isnan(own[1].values[0]));
    wait_copies<0>();
    EXPECT_EQ(own[1].values[0], 5.0F);
  });
  EXPECT_THAT(before, ::testing::Each(::testing::IsNan()));
  EXPECT_THAT(after, ::testing::Each(4.0F));
  EXPECT_THAT(unwanted, ::testing::Each(0.0F));
}

// Fragments gathered from plain matrices by the layout of the PTX ISA: a [16][depth], b
// [depth][8], c [16][8], of 16-bit or 8-bit elements.
template <class T>
struct Matrices {
  static constexpr unsigned kPerWord = 4 / sizeof(T);
  static constexpr unsigned kDepth = 8 * kPerWord;
  std::vector<T> a = std::vector<T>(16 * kDepth);
  std::vector<T> b = std::vector<T>(kDepth * 8);

  void fragments(unsigned lane, std::uint32_t (&fa)[4], std::uint32_t (&fb)[2]) const {
    const unsigned g = lane / 4;
    const unsigned t = lane % 4;
    for (unsigned i = 0; i < 4; ++i) {
      std::memcpy(
          &fa[i], &a[(g + i % 2 * 8) * kDepth + (t + i / 2 * 4) * kPerWord], sizeof(std::uint32_t));
    }
    for (unsigned i = 0; i < 2; ++i) {
      T packed[kPerWord];
      for (unsigned j = 0; j < kPerWord; ++j) {
        packed[j] = b[((t + i * 4) * kPerWord + j) * 8 + g];
      }
      std::memcpy(&fb[i], packed, sizeof(packed));
    }
  }
};
unsigned row_of(unsigned lane, unsigned i) {
  return lane / 4 + i / 2 * 8;
}
unsigned column_of(unsigned lane, unsigned i) {
  return lane % 4 * 2 + i % 2;
}

TEST(CudaEmulator, HalfProductsOfAWarp) {
  std::mt19937 rng(1);
  for (const bool bfloat : {false, true}) {
    Matrices<std::uint16_t> in;
    std::vector<double> a;
    std::vector<double> b;
    const auto fill = [&](std::vector<std::uint16_t>& bits, std::vector<double>& values) {
      for (std::uint16_t& x : bits) {
        const float value = std::normal_distribution<float>()(rng);
        x = bfloat ? bfloat_of(value) : half_of(value);
        values.push_back(bfloat ? bfloat_to_float(x) : half_to_float(x));
      }
    };
    fill(in.a, a);
    fill(in.b, b);
    std::vector<float> c(16 * 8, 0.5F);
    run_grid({.threads = 32}, [&] {
      const unsigned lane = lane_index();
      std::uint32_t fa[4];
      std::uint32_t fb[2];
      float fc[4];
      in.fragments(lane, fa, fb);
      for (unsigned i = 0; i < 4; ++i) {
        fc[i] = c[row_of(lane, i) * 8 + column_of(lane, i)];
      }
      bfloat ? mma_bfloat(fc, fa, fb) : mma_half(fc, fa, fb);
      for (unsigned i = 0; i < 4; ++i) {
        c[row_of(lane, i) * 8 + column_of(lane, i)] = fc[i];
      }
    });
    for (unsigned row = 0; row < 16; ++row) {
      for (unsigned column = 0; column < 8; ++column) {
        double want = 0.5;
        for (unsigned k = 0; k < 16; ++k) {
          want += a[row * 16 + k] * b[k * 8 + column];
        }
        EXPECT_FLOAT_EQ(c[row * 8 + column], static_cast<float>(want));
      }
    }
  }
}

TEST(CudaEmulator, Int8ProductsOfAWarp) {
  std::mt19937 rng(2);
  Matrices<std::int8_t> in;
  for (std::vector<std::int8_t>* values : {&in.a, &in.b}) {
    for (std::int8_t& x : *values) {
      x = static_cast<std::int8_t>(rng());
    }
  }
  std::vector<std::int32_t> c(16 * 8);
  run_grid({.threads = 32}, [&] {
    std::uint32_t fa[4];
    std::uint32_t fb[2];
    std::int32_t fc[4] = {7, 7, 7, 7};
    in.fragments(lane_index(), fa, fb);
    mma_int8(fc, fa, fb);
    for (unsigned i = 0; i < 4; ++i) {
      c[row_of(lane_index(), i) * 8 + column_of(lane_index(), i)] = fc[i];
    }
  });
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned column = 0; column < 8; ++column) {
      std::int32_t want = 7;
      for (unsigned k = 0; k < 32; ++k) {
        want += in.a[row * 32 + k] * in.b[k * 8 + column];
      }
      EXPECT_EQ(c[row * 8 + column], want);
    }
  }
}

TEST(CudaEmulatorDeathTest, ABarrierThatSomeThreadsSkip) {
  EXPECT_DEATH(run_grid({.threads = 64},
                        [] {
                          if (thread_index() < 40) {
                            sync_threads();
                          }
                        }),
               "40 threads wait at a barrier and 24 have ended");
}

TEST(CudaEmulatorDeathTest, ThreadsOfAWarpThatDoDifferentThings) {
  EXPECT_DEATH(
      run_grid({.threads = 32}, [] { thread_index() == 3 ? sync_warp() : (void)ballot(true); }),
      "meet at different operations");
}

TEST(CudaEmulatorDeathTest, CopiesThatNobodyWaitsFor) {
  alignas(16) static const float from[4] = {};
  EXPECT_DEATH(run_grid({.threads = 32, .dynamic_shared = 512},
                        [] {
                          copy_async16(dynamic_shared<std::byte>() + thread_index() * 16, from);
                          commit_copies();
                        }),
               "without waiting for its copies");
}

TEST(CudaEmulatorDeathTest, LaunchesThatADeviceRefuses) {
  EXPECT_DEATH(run_grid({.threads = 48}, [] {}), "multiple of 32");
  EXPECT_DEATH(run_grid({.threads = 32, .dynamic_shared = 240 * 1024}, [] {}), "227 KiB");
}

}  // namespace
}  // namespace baton::kernels::cuda
