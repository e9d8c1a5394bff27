// Executors, timers, mailbox, host:port and random sources.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "common/base/host_port.h"
#include "common/base/random.h"
#include "common/exec/asio_executor.h"
#include "common/exec/mailbox.h"
#include "common/exec/manual_executor.h"
#include "common/exec/thread.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

TEST(ManualExecutor, RunsPostedTasksInOrderAndNotInsidePost) {
  ManualExecutor executor;
  std::vector<int> seen;
  executor.post([&] {
    executor.post([&] { seen.push_back(3); });
    seen.push_back(1);
    EXPECT_TRUE(executor.is_current());
  });
  executor.post([&] { seen.push_back(2); });
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(executor.run_until_idle(), 3U);
  EXPECT_EQ(seen, (std::vector{1, 2, 3}));
  EXPECT_FALSE(executor.is_current());
}

TEST(ManualExecutor, AdvanceStopsAtEachTimer) {
  ManualExecutor executor;
  const auto start = executor.now();
  std::vector<std::pair<int, milliseconds>> seen;
  const auto note = [&](int number) {
    seen.emplace_back(number, std::chrono::duration_cast<milliseconds>(executor.now() - start));
  };
  auto late = executor.call_after(milliseconds(20), [&] { note(2); });
  TimerHandle chained;
  auto early = executor.call_after(milliseconds(10), [&] {
    note(1);
    chained = executor.call_after(milliseconds(15), [&] { note(3); });
  });
  executor.advance(milliseconds(100));
  EXPECT_EQ(seen,
            (std::vector<std::pair<int, milliseconds>>{
                {1, milliseconds(10)}, {2, milliseconds(20)}, {3, milliseconds(25)}}));
  EXPECT_EQ(executor.now() - start, milliseconds(100));
  EXPECT_FALSE(late.is_pending());
}

TEST(ManualExecutor, DroppedTimerDoesNotRun) {
  ManualExecutor executor;
  bool ran = false;
  {
    const auto timer = executor.call_after(milliseconds(1), [&] { ran = true; });
    EXPECT_TRUE(timer.is_pending());
  }
  executor.advance(milliseconds(10));
  EXPECT_FALSE(ran);
}

TEST(ManualExecutor, TimerMayOutliveExecutor) {
  TimerHandle timer;
  {
    ManualExecutor executor;
    timer = executor.call_after(milliseconds(1), [] {});
  }
  EXPECT_FALSE(timer.is_pending());
}

TEST(AsioExecutor, RunsOnItsThreadInOrder) {
  ControlThread thread("control");
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) {
    thread.executor().post([&seen, i] { seen.push_back(i); });
  }
  bool current = false;
  thread.run_and_wait([&] { current = thread.executor().is_current(); });
  EXPECT_TRUE(current);
  EXPECT_FALSE(thread.executor().is_current());
  ASSERT_EQ(seen.size(), 100U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(AsioExecutor, WhatATaskPostsRunsAfterItAndBeforeOthers) {
  ControlThread thread("control");
  auto& executor = thread.executor();
  std::vector<int> seen;
  Mailbox<bool> done;
  executor.post([&] {
    executor.post([&] { seen.push_back(2); });
    executor.post([&] {
      seen.push_back(3);
      executor.post([&] {
        seen.push_back(5);
        done.put(true);
      });
      seen.push_back(4);
    });
    executor.dispatch([&] { seen.push_back(0); });
    seen.push_back(1);
  });
  done.wait_all();
  EXPECT_EQ(seen, (std::vector{0, 1, 2, 3, 4, 5}));
}

TEST(AsioExecutor, TasksThatPostThemselvesForEverLeaveTimersTheirTime) {
  ControlThread thread("control");
  auto& executor = thread.executor();
  bool over = false;  // on the strand
  std::function<void()> again = [&] {
    if (!over) {
      executor.post(again);
    }
  };
  Mailbox<bool> done;
  TimerHandle timer;
  thread.run_and_wait([&] {
    timer = executor.call_after(milliseconds(1), [&] {
      over = true;
      done.put(true);
    });
    again();
    again();
  });
  EXPECT_EQ(done.wait_all(), std::vector{true});
}

TEST(AsioExecutor, WhatALaterTaskPostsStaysBehindWhatAnEarlierOneHas) {
  ControlThread thread("control");
  auto& executor = thread.executor();
  std::vector<int> seen;
  Mailbox<bool> done;
  std::latch second_waits(1);
  executor.post([&] {
    executor.post([&] { executor.post([&] { seen.push_back(1); }); });
    second_waits.wait();
  });
  executor.post([&] {
    executor.post([&] {
      seen.push_back(2);
      done.put(true);
    });
  });
  second_waits.count_down();
  done.wait_all();
  EXPECT_EQ(seen, (std::vector{1, 2}));
}

TEST(AsioExecutor, TimerRunsOnceAndCancelledOneNever) {
  ControlThread thread("control");
  auto& executor = thread.executor();
  Mailbox<int> seen;
  TimerHandle cancelled;
  TimerHandle kept;
  thread.run_and_wait([&] {
    cancelled = executor.call_after(milliseconds(1), [&] { seen.put(1); });
    cancelled.cancel();
    // The task drops its own handle.
    kept = executor.call_after(milliseconds(5), [&] {
      kept.cancel();
      seen.put(2);
    });
  });
  EXPECT_EQ(seen.wait_all(), std::vector{2});
  thread.run_and_wait([&] { EXPECT_FALSE(kept.is_pending()); });
}

TEST(AsioExecutor, StopDropsWhatHasNotBegun) {
  auto held = std::make_shared<int>(1);
  TimerHandle timer;
  {
    ControlThread thread("control");
    thread.run_and_wait(
        [&] { timer = thread.executor().call_after(std::chrono::hours(1), [held] {}); });
    thread.stop();
    thread.executor().post([held] {});
    timer.cancel();
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Mailbox, GivesEverythingInOrderAndEndsWhenClosed) {
  Mailbox<int> box;
  NamedThread writer("writer", [&](const std::stop_token&) {
    for (int i = 0; i < 1000; ++i) {
      box.put(i);
    }
    box.close();
  });
  std::vector<int> all;
  for (auto some = box.wait_all(); !some.empty(); some = box.wait_all()) {
    all.insert(all.end(), some.begin(), some.end());
  }
  ASSERT_EQ(all.size(), 1000U);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_FALSE(box.put(1));
}

TEST(Mailbox, RefusesOverItsLimit) {
  Mailbox<int> box(2);
  EXPECT_TRUE(box.put(1));
  EXPECT_TRUE(box.put(2));
  EXPECT_FALSE(box.put(3));
  EXPECT_EQ(box.take_all(), (std::vector{1, 2}));
}

TEST(HostPort, ParsesAndPrints) {
  EXPECT_EQ(HostPort::parse("127.0.0.1:7000"), (HostPort{"127.0.0.1", 7000}));
  EXPECT_EQ(HostPort::parse("[::1]:0"), (HostPort{"::1", 0}));
  EXPECT_EQ(HostPort::parse("node-1.example:65535")->to_string(), "node-1.example:65535");
  EXPECT_EQ(HostPort::parse("[fe80::1]:80")->to_string(), "[fe80::1]:80");
}

TEST(HostPort, SaysWhatIsWrong) {
  for (const auto* text : {"",
                           ":",
                           "host",
                           "host:",
                           "host:x",
                           "host:65536",
                           "host:-1",
                           "::1:80",
                           "a b:1",
                           ":80",
                           "host:1 "}) {
    const auto parsed = HostPort::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::InvalidArgument);
  }
  EXPECT_EQ(HostPort::parse("host").error().message,
            "'host' is no address of the form host:port: the port is missing");
}

TEST(Random, SeededRepeatsAndSystemDiffers) {
  auto a = seeded_random(7);
  auto b = seeded_random(7);
  auto c = seeded_random(8);
  const auto first = a();
  EXPECT_EQ(first, b());
  EXPECT_NE(first, c());
  EXPECT_NE(a(), first);
  auto system = system_random();
  EXPECT_NE(system(), system());
}

}  // namespace
}  // namespace baton
