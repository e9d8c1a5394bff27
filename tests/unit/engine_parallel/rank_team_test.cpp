#include "engine/parallel/rank_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <set>
#include <thread>
#include <vector>

namespace baton::engine {
namespace {

class Teams : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Teams, EveryRankRunsOnceOnItsOwnThread) {
  RankTeam team(GetParam());
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<std::thread::id> threads(team.size());
    std::atomic<std::uint32_t> runs{0};
    team.run([&](std::uint32_t rank) {
      threads[rank] = std::this_thread::get_id();
      runs.fetch_add(1);
    });
    EXPECT_EQ(runs.load(), team.size());
    EXPECT_EQ(threads[0], std::this_thread::get_id());
    EXPECT_EQ(std::set<std::thread::id>(threads.begin(), threads.end()).size(), team.size());
  }
}

// Parts of different sizes, some empty, gathered many times into the same buffers: a part that
// were read too late would carry the next round's numbers.
TEST_P(Teams, GatherBringsEveryPartOfThisRound) {
  RankTeam team(GetParam());
  const std::uint32_t ranks = team.size();
  std::vector<std::size_t> borders{0};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    borders.push_back(borders.back() + rank * 5);
  }
  std::atomic<int> wrong{0};
  team.run([&](std::uint32_t rank) {
    Communicator& communicator = team.communicator(rank);
    EXPECT_EQ(communicator.rank(), rank);
    EXPECT_EQ(communicator.size(), ranks);
    std::vector<float> all(borders.back());
    for (int round = 0; round < 300; ++round) {
      const auto value = [&](std::size_t i) {
        return static_cast<float>(round) * 1000.0F + float(i);
      };
      for (std::size_t i = borders[rank]; i < borders[rank + 1]; ++i) {
        all[i] = value(i);
      }
      communicator.all_gather(all, borders);
      for (std::size_t i = 0; i < all.size(); ++i) {
        wrong += all[i] == value(i) ? 0 : 1;
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(Teams, BarrierShowsWhatOthersWroteBefore) {
  RankTeam team(GetParam());
  std::vector<int> written(team.size(), 0);
  std::atomic<int> wrong{0};
  team.run([&](std::uint32_t rank) {
    for (int round = 1; round <= 300; ++round) {
      written[rank] = round;
      team.communicator(rank).barrier();
      for (const int value : written) {
        wrong += value == round ? 0 : 1;
      }
      team.communicator(rank).barrier();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Teams, ::testing::Values(1U, 2U, 3U, 4U));

}  // namespace
}  // namespace baton::engine
