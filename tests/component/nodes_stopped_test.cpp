// Nodes that do not die but stand still: a whole process, as SIGSTOP leaves it, or its data thread
// alone. The other side notices within its heartbeats, hands the requests back at once, and what
// the stopped one still does when it moves again changes nothing.
#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

using std::chrono::milliseconds;

class NodesStopped : public NodesFixture {
 protected:
  NodesStopped() {
    for (const char* name : {"d0", "d1"}) {
      cluster_.add("decode", name);
    }
    for (const char* name : {"p0", "p1"}) {
      cluster_.add("prefill", name);
    }
    // Their connections exist before anything happens to them.
    for (const char* name : {"p0", "p1"}) {
      const GenerateRequest warm = make_request(name[1], 20, 2, 77);
      cluster_.start(warm, name, "d0");
      cluster_.finish(warm);
    }
    cluster_.settle();
  }

  // Six heartbeats missed, and the moment it takes to say so.
  const milliseconds limit_ = ClusterConfig{}.cluster.heartbeat * 6 + milliseconds(10);
  // A beat tells what the poke before it did, so the first that stands still is the second.
  const milliseconds data_limit_ = limit_ + ClusterConfig{}.cluster.heartbeat * 2;

  GenerateRequest start_stalled(std::uint64_t id) {
    network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
    const GenerateRequest request = make_request(id, 90, 12, id);
    cluster_.start(request, "p0", "d0");
    cluster_.executor().run_until_idle();
    network_.set_hook(nullptr);
    return request;
  }

  void expect_stalled(const GenerateRequest& request) {
    const Answer& answer = cluster_.answer(request);
    ASSERT_TRUE(answer.error);
    EXPECT_TRUE(answer.error->code == ErrorCode::PeerStalled ||
                answer.error->code == ErrorCode::PeerDead)
        << answer.error->message;
  }

  void expect_resumes(const GenerateRequest& request,
                      const std::string& prefill,
                      const std::string& decode) {
    cluster_.cancel(request);
    const GenerateRequest next = resumed(request);
    cluster_.start(next, prefill, decode);
    cluster_.finish(next);
    expect_resumed_same(request, next);
  }

  std::uint64_t ticks(const std::string& node) {
    return cluster_.last_beat(node)->load().reactor_ticks();
  }
};

TEST_F(NodesStopped, IdleDataThreadsMoveBetweenHeartbeats) {
  for (const char* name : {"d0", "p0", "d1", "p1"}) {
    std::uint64_t last = 0;
    for (int i = 0; i < 5; ++i) {
      cluster_.executor().advance(ClusterConfig{}.cluster.heartbeat);
      EXPECT_GT(ticks(name), last) << name;
      last = ticks(name);
    }
  }
}

TEST_F(NodesStopped, StuckDataThreadIsSeenBehindALiveControlThread) {
  network_.set_stuck("p0", true);
  cluster_.executor().advance(ClusterConfig{}.cluster.heartbeat);
  const std::uint64_t last = ticks("p0");
  cluster_.executor().advance(ClusterConfig{}.cluster.heartbeat * 3);
  EXPECT_EQ(ticks("p0"), last);
  EXPECT_NE(cluster_.channel("p0"), nullptr);
  network_.set_stuck("p0", false);
  cluster_.executor().advance(ClusterConfig{}.cluster.heartbeat * 2);
  EXPECT_GT(ticks("p0"), last);
}

TEST_F(NodesStopped, StoppedPrefillLosesItsLeasesToOthers) {
  const GenerateRequest request = start_stalled(1);
  set_stopped("p0", true);
  cluster_.executor().advance(limit_);
  expect_stalled(request);
  EXPECT_TRUE(cluster_.run_until([&] { return cluster_.node("d0").is_clean(); }));
  // Its blocks are another request's when it wakes and its bytes land.
  const GenerateRequest next = make_request(3, 90, 200, 3);
  cluster_.start(next, "p1", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(next).tokens.size() > 3; }));
  set_stopped("p0", false);
  cluster_.finish(next);
  expect_same(next);
  expect_resumes(request, "p0", "d0");
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesStopped, StoppedDecodeGivesPrefillItsBlocksBack) {
  const GenerateRequest request = start_stalled(1);
  set_stopped("d0", true);
  cluster_.executor().advance(limit_);
  expect_stalled(request);
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U);
  EXPECT_TRUE(cluster_.node("p0").is_clean());
  expect_resumes(request, "p0", "d1");
  set_stopped("d0", false);
  cluster_.settle();
  EXPECT_EQ(cluster_.node("d0").decode().grants().num_open(), 0U);
  EXPECT_EQ(cluster_.node("d0").decode().scheduler().num_running(), 0U);
  const GenerateRequest next = make_request(3, 90, 20, 3);
  cluster_.start(next, "p0", "d0");
  cluster_.finish(next);
  expect_same(next);
}

TEST_F(NodesStopped, WriterWithAStuckDataThreadLosesItsLeases) {
  const GenerateRequest request = start_stalled(1);
  network_.set_stuck("p0", true);
  cluster_.executor().advance(data_limit_);
  expect_stalled(request);
  network_.set_stuck("p0", false);
  network_.release_stalled();
  expect_resumes(request, "p1", "d0");
  cluster_.settle();
}

TEST_F(NodesStopped, DecodeWithAStuckDataThreadIsLeft) {
  const GenerateRequest request = start_stalled(1);
  network_.set_stuck("d0", true);
  cluster_.executor().advance(data_limit_);
  expect_stalled(request);
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U);
  expect_resumes(request, "p0", "d1");
  network_.set_stuck("d0", false);
  network_.release_stalled();
  cluster_.settle();
}

TEST_F(NodesStopped, ShortStopIsForgiven) {
  const GenerateRequest request = start_stalled(1);
  set_stopped("p0", true);
  cluster_.executor().advance(ClusterConfig{}.cluster.heartbeat * 4);
  EXPECT_FALSE(cluster_.answer(request).error);
  set_stopped("p0", false);
  cluster_.finish(request);
  expect_same(request);
  cluster_.settle();
}

TEST_F(NodesStopped, PrefillStartedAgainUnderItsNameServes) {
  for (std::uint64_t life = 0; life < 20; ++life) {
    const GenerateRequest cut = start_stalled(100 + life);
    network_.kill("p0");
    cluster_.kill("p0");
    cluster_.finish(cut);
    ASSERT_TRUE(cluster_.answer(cut).error);
    cluster_.add("prefill", "p0");
    expect_resumes(cut, "p0", "d0");
    cluster_.settle();
    ASSERT_TRUE(cluster_.node("d0").is_clean()) << life;
  }
}

}  // namespace
}  // namespace baton::testing
