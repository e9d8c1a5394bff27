#include "common/base/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Cores, NumbersAndRanges) {
  EXPECT_THAT(*parse_cores(""), IsEmpty());
  EXPECT_THAT(*parse_cores("3"), ElementsAre(3));
  EXPECT_THAT(*parse_cores("8,0-2,1"), ElementsAre(0, 1, 2, 8));
}

TEST(Cores, WhatIsNoSetIsRefused) {
  for (const char* text :
       {"a", "1,", ",1", "1-", "-1", "2-1", "1 2", "1,,2", "99999", "1-99999", "0x1"}) {
    const auto cores = parse_cores(text);
    ASSERT_FALSE(cores) << text;
    EXPECT_THAT(cores.error().message, HasSubstr("0-3,8"));
  }
}

TEST(Cores, AThreadStaysWithThoseItMakes) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  unsigned first = 0;
  while (!CPU_ISSET(first, &before)) {
    ++first;
  }
  std::jthread([&] {
    EXPECT_TRUE(stay_on({}));
    ASSERT_TRUE(stay_on({first}));
    std::jthread([&] {
      cpu_set_t mine;
      ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
      EXPECT_EQ(CPU_COUNT(&mine), 1);
      EXPECT_TRUE(CPU_ISSET(first, &mine));
    });
    EXPECT_FALSE(stay_on({CPU_SETSIZE - 1})) << "this machine has no such processor";
  });
}

TEST(Cores, ShortTurnsChangeNothingElse) {
  const int policy = sched_getscheduler(0);
  std::jthread([&] {
    prefer_short_turns();
    EXPECT_EQ(sched_getscheduler(0), policy);
  });
}

}  // namespace
}  // namespace baton
