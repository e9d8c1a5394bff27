// Faults that serving systems with separate prefill and decode are known for, each as a scenario of
// its own; tests/sim/README.md says which other tests show the rest.
#include <fmt/format.h>

#include <algorithm>

#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

using std::chrono::minutes;

class KnownFaults : public NodesFixture {
 protected:
  void add_pair(std::uint32_t decode_blocks = 64, std::uint32_t prefill_blocks = 64) {
    cluster_.add("decode", "d0", decode_blocks);
    cluster_.add("prefill", "p0", prefill_blocks);
  }
};

// F1. One block of the first prompt never lands, and the place is given to another prompt: the
// first ends with an error, none of its tokens comes from a block that it has not received, and the
// second's blocks are its own.
TEST_F(KnownFaults, F1ReceiveThatIsNotWholeIsAnErrorAndNeverText) {
  add_pair(12);
  bool is_lost = false;
  network_.set_hook([&](const FakeMessage& message) {
    if (message.header.layer == 1 && !is_lost) {
      is_lost = true;
      return FakeFate::Drop;
    }
    return FakeFate::Deliver;
  });
  const GenerateRequest first = make_request(1, 90, 40, 1);
  cluster_.start(first, "p0", "d0");
  cluster_.finish(first);
  ASSERT_TRUE(is_lost);
  const Answer& answer = cluster_.answer(first);
  ASSERT_TRUE(answer.error);
  EXPECT_TRUE(is_retryable(answer.error->code)) << answer.error->message;
  EXPECT_LE(answer.output().size(), 1U);  // what the prefill node itself has sampled
  EXPECT_EQ(cluster_.node("d0").decode().grants().stats().verified, 0U);
  const GenerateRequest second = make_request(2, 90, 40, 2);  // takes the same blocks
  cluster_.start(second, "p0", "d0");
  cluster_.finish(second);
  expect_same(second);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

// F4. The client leaves when the prefill node has everything ready and decode has not begun, again
// and again: the blocks come back at once, by the cancel and by no timeout.
TEST_F(KnownFaults, F4ClientLeavesBetweenPrefillAndDecode) {
  add_pair();
  const TimePoint begin = cluster_.executor().now();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const GenerateRequest request = make_request(1 + i, 40, 6, i);
    network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
    cluster_.start(request, "p0", "d0");
    cluster_.executor().run_until_idle();
    ASSERT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 1U);
    ASSERT_EQ(cluster_.node("d0").decode().scheduler().num_running(), 0U);
    cluster_.cancel(request);
    network_.set_hook(nullptr);
    network_.release_stalled();
    cluster_.executor().run_until_idle();
    ASSERT_TRUE(cluster_.all_clean()) << i << ": " << cluster_.node("p0").describe_blocks();
  }
  EXPECT_EQ(cluster_.executor().now(), begin);
}

// F15. 256 requests at once while every hundredth message fails: each ends, well or with an error
// that is worth another attempt, and then well. After idle hours the connection breaks at its next
// use, and the use after that finds a new one.
TEST_F(KnownFaults, F15ManyTransfersAtOnceAndAConnectionLostAfterIdleHours) {
  add_pair(600, 600);
  std::uint64_t messages = 0;
  network_.set_hook([&](const FakeMessage&) {
    return ++messages % 100 == 0 ? FakeFate::Fail : FakeFate::Deliver;
  });
  std::vector<GenerateRequest> open;
  for (std::uint64_t i = 0; i < 256; ++i) {
    open.push_back(make_request(1 + i, 40 + i % 60, 5, i));
  }
  for (int round = 0; round < 60 && !open.empty(); ++round) {
    for (const GenerateRequest& request : open) {
      cluster_.start(request, "p0", "d0");
    }
    std::vector<GenerateRequest> again;
    for (const GenerateRequest& request : open) {
      const Answer& answer = cluster_.finish(request);
      if (!answer.error) {
        expect_same(request);
        continue;
      }
      ASSERT_TRUE(is_retryable(answer.error->code)) << answer.error->message;
      cluster_.cancel(request);
      again.push_back(request);
      again.back().id = RequestId{request.id.value + 1000};
    }
    open = std::move(again);
  }
  EXPECT_TRUE(open.empty()) << open.size();
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());

  cluster_.executor().advance(minutes(30));
  network_.set_hook([](const FakeMessage&) { return FakeFate::Fail; });
  const GenerateRequest late = make_request(500'000, 60, 5, 3);
  cluster_.start(late, "p0", "d0");
  ASSERT_TRUE(cluster_.finish(late).error);
  cluster_.cancel(late);
  network_.set_hook(nullptr);
  const GenerateRequest next = make_request(500'001, 60, 5, 4);
  cluster_.start(next, "p0", "d0");
  cluster_.finish(next);
  expect_same(next);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

}  // namespace
}  // namespace baton::testing
