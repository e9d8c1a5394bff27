#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::kernels::cpu {
namespace {

TEST(ThreadPool, EveryPartRunsOnceInEachRun) {
  for (const unsigned threads : {1U, 2U, 3U, 5U}) {
    ThreadPool pool(threads, false);
    ASSERT_EQ(pool.threads(), threads);
    std::vector<int> counts(threads, 0);  // each part writes its own
    for (int i = 0; i < 2000; ++i) {
      pool.run([&](unsigned thread) { ++counts[thread]; });
    }
    EXPECT_EQ(counts, std::vector<int>(threads, 2000));
  }
}

TEST(ThreadPool, EachItemIsTakenOnce) {
  ThreadPool pool(3, true);
  for (const std::size_t count : {0, 1, 2, 100}) {
    std::vector<std::atomic<int>> taken(count);
    pool.for_each(count, [&](unsigned, std::size_t i) { taken[i].fetch_add(1); });
    for (const std::atomic<int>& times : taken) {
      EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(ThreadPool, WorkersThatWentToSleepWakeAgain) {
  ThreadPool pool(2, false);
  std::atomic<int> runs{0};
  for (int i = 0; i < 5; ++i) {
    pool.run([&](unsigned) { runs.fetch_add(1); });
    // Long enough that the worker stops spinning; correct whether it does or not.
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(runs.load(), 10);
}

}  // namespace
}  // namespace baton::kernels::cpu
