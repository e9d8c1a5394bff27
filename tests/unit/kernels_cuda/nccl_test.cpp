// Ranks over a library that stands for NCCL: what they gather is where the host's communicator
// would put it, and what goes wrong is said with what to do.
#include "kernels/cuda/nccl.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/nccl_ranks.h"

namespace baton::kernels::cuda {
namespace {

using ::testing::HasSubstr;

// A function of the fake itself.
template <class Function>
Function* of_fake(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(::dlopen(FAKE_NCCL, RTLD_NOW), name));
}

NcclApi fake() {
  auto api = NcclApi::open(FAKE_NCCL);
  EXPECT_TRUE(api) << api.error().message;
  return *api;
}

std::vector<std::unique_ptr<NcclRank>> joined(std::uint32_t count) {
  std::vector<int> devices(count);
  std::iota(devices.begin(), devices.end(), 2);
  auto ranks = join_ranks(fake(), devices);
  EXPECT_TRUE(ranks) << ranks.error().message;
  return std::move(*ranks);
}

template <class Body>
void on_threads(std::uint32_t count, const Body& body) {
  std::vector<std::jthread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
}

class NcclRanks : public ::testing::TestWithParam<std::uint32_t> {};

// Equal and unequal parts in turn, some empty, many times into the same buffers.
TEST_P(NcclRanks, GatherBringsEveryPartOfThisRound) {
  const std::uint32_t count = GetParam();
  const auto ranks = joined(count);
  std::vector<std::size_t> equal{0};
  std::vector<std::size_t> unequal{0};
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    equal.push_back(equal.back() + 6);
    unequal.push_back(unequal.back() + std::size_t{rank} * 5);
  }
  std::atomic<int> wrong{0};
  on_threads(count, [&](std::uint32_t rank) {
    for (int round = 0; round < 100; ++round) {
      const auto& borders = round % 2 == 0 ? equal : unequal;
      const auto value = [&](std::size_t i) {
        return static_cast<float>(round) * 1000.0F + static_cast<float>(i);
      };
      std::vector<float> all(borders.back(), -1.0F);
      for (std::size_t i = borders[rank]; i < borders[rank + 1]; ++i) {
        all[i] = value(i);
      }
      wrong += ranks[rank]->all_gather(all, borders, {}) ? 0 : 1;
      for (std::size_t i = 0; i < all.size(); ++i) {
        wrong += all[i] == value(i) ? 0 : 1;
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}
INSTANTIATE_TEST_SUITE_P(Counts, NcclRanks, ::testing::Values(1U, 2U, 4U));

TEST(Nccl, RanksThatCallDifferentlyAreToldSo) {
  const auto ranks = joined(2);
  std::vector<std::string> messages(2);
  on_threads(2, [&](std::uint32_t rank) {
    std::vector<float> all(8);
    const std::vector<std::size_t> borders{0, rank == 0 ? 3U : 5U, 8};
    const Status gathered = ranks[rank]->all_gather(all, borders, {});
    messages[rank] = gathered ? "" : gathered.error().message;
  });
  EXPECT_THAT(messages[0], HasSubstr("rank 0 of 2 cannot reach the others"));
  EXPECT_THAT(messages[1], HasSubstr("NCCL says \"invalid usage\" (5)"));
  EXPECT_THAT(messages[1], HasSubstr("NCCL_DEBUG=INFO"));
}

TEST(Nccl, AFailedCallIsAnErrorOfThatRank) {
  const auto ranks = joined(1);
  of_fake<void(int, int, int)>("fake_nccl_fail")(0, 1, 2);
  std::vector<float> all(4);
  const std::vector<std::size_t> borders{0, 4};
  EXPECT_TRUE(ranks[0]->all_gather(all, borders, {}));
  const Status failed = ranks[0]->all_gather(all, borders, {});
  of_fake<void(int, int, int)>("fake_nccl_fail")(-1, 0, 0);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(failed.error().message, HasSubstr("\"unhandled system error\" (2)"));
}

TEST(Nccl, GpusThatCannotBeJoinedAreNamed) {
  const std::vector<int> devices{98, 99};
  const auto ranks = join_ranks(fake(), devices);
  ASSERT_FALSE(ranks);
  EXPECT_EQ(ranks.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(ranks.error().message, HasSubstr("no CUDA: NCCL cannot join GPUs 98, 99"));
}

TEST(Nccl, TheLastRankToGoClosesIt) {
  const auto alive = of_fake<int()>("fake_nccl_alive");
  ASSERT_EQ(alive(), 0);
  auto ranks = joined(4);
  EXPECT_EQ(alive(), 4);
  ranks.resize(1);
  EXPECT_EQ(alive(), 4);
  ranks.clear();
  EXPECT_EQ(alive(), 0);
}

TEST(Nccl, AMissingOrForeignLibraryIsNamed) {
  const auto missing = NcclApi::open("libno-such-nccl.so.2");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("libno-such-nccl.so.2"));
  EXPECT_THAT(missing.error().message, HasSubstr("tools/setup-cuda"));
  const auto other = NcclApi::open("libc.so.6");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("libc.so.6 has no ncclCommInitAll"));
}

}  // namespace
}  // namespace baton::kernels::cuda
