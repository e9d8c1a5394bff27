// The same nodes with their KV blocks moved by UCX, over each lane this machine has.
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <thread>

#include "tests/support/mini_cluster.h"

namespace baton::testing {
namespace {

class NodesUcx : public ::testing::TestWithParam<const char*> {
 protected:
  NodesUcx() { cluster_.use_engine_threads(); }

  std::string lane() const {
    return GetParam() == std::string("shm_put") ? "shm" : std::string(GetParam());
  }

  std::unique_ptr<transfer::Transport> make(KvArenaView arena) {
    transfer::TransportOptions options;
    options.transport = lane();
    options.path = GetParam() == std::string("shm_put") ? "put" : "auto";
    auto transport = transfer::Transport::create(options, arena);
    EXPECT_TRUE(transport) << transport.error().message;
    return std::move(*transport);
  }

  // The cluster's time runs ahead of the data threads': it must not call them stuck for that.
  static ClusterConfig patient() {
    ClusterConfig config;
    config.cluster.heartbeat = std::chrono::seconds(2);
    return config;
  }

  ScriptedOptions model_;
  MiniCluster cluster_{
      [this](const std::string&, KvArenaView arena) { return make(arena); }, model_, patient()};
};

TEST_P(NodesUcx, IdleDataThreadTurnsWhenPoked) {
  transfer::Transport& transport = cluster_.add("decode", "d0").transport();
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = transport.stats().loop_count;
    transport.poke();
    EXPECT_TRUE(cluster_.run_until([&] { return transport.stats().loop_count > before; }));
  }
}

TEST_P(NodesUcx, StuckDataThreadIsSeenAndItsRequestsAreHandedBack) {
  transfer::Transport& stuck = cluster_.add("decode", "d0").transport();
  cluster_.add("decode", "d1");
  cluster_.add("prefill", "p0");
  // A callback that does not return holds up the thread, and nothing else of the process.
  std::latch is_stuck(1);
  struct Latch {  // opens at the latest when the test ends, however it does
    std::promise<void> opened;
    bool is_open = false;
    void open() {
      if (!std::exchange(is_open, true)) {
        opened.set_value();
      }
    }
    ~Latch() { open(); }
  } let_go;
  stuck.open_lease(LeaseId{1, 2}, Epoch{9}, {BlockRun{BlockId{0}, 1}})
      ->revoke([&, waits_for = let_go.opened.get_future().share()] {
        is_stuck.count_down();
        waits_for.wait();
      });
  is_stuck.wait();
  const std::uint64_t loops = stuck.stats().loop_count;
  const GenerateRequest request = make_request(1, 100, 8);
  cluster_.start(request, "p0", "d0");
  const Answer& answer = cluster_.answer(request);
  transfer::Transport& healthy = cluster_.node("p0").transport();
  for (int beat = 0; beat < 12 && !answer.is_over(); ++beat) {
    const std::uint64_t turns = healthy.stats().loop_count;
    cluster_.executor().advance(patient().cluster.heartbeat);
    ASSERT_TRUE(cluster_.run_until([&] { return healthy.stats().loop_count > turns; }));
  }
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerStalled) << answer.error->message;
  EXPECT_EQ(stuck.stats().loop_count, loops);
  EXPECT_EQ(cluster_.last_beat("d0")->load().reactor_ticks(), loops);
  cluster_.cancel(request);
  const GenerateRequest next = make_request(2, 100, 8);
  cluster_.start(next, "p0", "d1");
  EXPECT_EQ(cluster_.finish(next).output(), scripted_output(model_, next));
  let_go.open();
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_P(NodesUcx, TokensEqualASingleProcessAndBytesAreCounted) {
  cluster_.add("decode", "d0", 256);
  cluster_.add("prefill", "p0", 256);
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    requests.push_back(make_request(1 + i, 30 + 190 * i, 12, i));
    cluster_.start(requests.back(), "p0", "d0");
  }
  const KvLayout& layout = cluster_.node("d0").kv().layout();
  for (const GenerateRequest& request : requests) {
    const Answer& answer = cluster_.finish(request);
    ASSERT_FALSE(answer.error) << answer.error->message;
    EXPECT_EQ(answer.output(), scripted_output(model_, request));
    const RequestFigures& figures = answer.figures.at("d0");
    EXPECT_EQ(figures.kv_bytes_moved,
              layout.blocks_for(request.prompt.size()) * layout.block_bytes_all_layers());
    EXPECT_EQ(figures.kv_transport, lane());
  }
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_P(NodesUcx, BlocksOfAnotherLayoutAreConverted) {
  const ScriptedOptions small{.block_tokens = 16};
  const ScriptedOptions large{.block_tokens = 32, .order = KvOrder::ByHeadAndToken};
  cluster_.use_model(small);
  cluster_.add("decode", "d16", 256);
  cluster_.add("prefill", "p16", 256);
  cluster_.use_model(large);
  cluster_.add("decode", "d32", 256);
  cluster_.add("prefill", "p32", 256);
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 8; ++i) {
    requests.push_back(make_request(1 + i, 30 + 190 * i, 12, i));
    cluster_.start(requests.back(), i % 2 == 0 ? "p16" : "p32", i % 2 == 0 ? "d32" : "d16");
  }
  for (std::uint64_t i = 0; i < requests.size(); ++i) {
    const Answer& answer = cluster_.finish(requests[i]);
    ASSERT_FALSE(answer.error) << answer.error->message;
    EXPECT_EQ(answer.output(), scripted_output(model_, requests[i]));
    const std::string decode = i % 2 == 0 ? "d32" : "d16";
    const KvLayout& layout = cluster_.node(decode).kv().layout();
    EXPECT_EQ(answer.figures.at(decode).kv_bytes_moved,
              layout.blocks_for(requests[i].prompt.size()) * layout.block_bytes_all_layers());
    EXPECT_EQ(answer.figures.at(decode).kv_transport, lane());
  }
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

// The same transports the other way round, with and without another layout.
TEST_P(NodesUcx, ColdPrefillNodePullsThePrefix) {
  cluster_.add("decode", "d0", 256);
  cluster_.add("prefill", "warm", 256);
  cluster_.add("prefill", "cold16", 256);
  cluster_.use_model({.block_tokens = 32, .order = KvOrder::ByHeadAndToken});
  cluster_.add("prefill", "cold32", 256);
  const GenerateRequest first = make_request(1, 3000, 40);
  cluster_.start(first, "warm", "d0");
  const std::vector<TokenId> output = cluster_.finish(first).output();
  cluster_.settle();
  std::uint64_t id = 2;
  // d0 has 3039 tokens, 189 whole blocks; of 32 tokens they are 94.
  for (const auto& [prefill, pulled] : {std::pair{"cold16", 3024U}, std::pair{"cold32", 3008U}}) {
    GenerateRequest second = first;
    second.id = RequestId{id++};
    second.prompt.insert(second.prompt.end(), output.begin(), output.end());
    cluster_.start(second, prefill, "d0");
    const Answer& answer = cluster_.finish(second);
    ASSERT_FALSE(answer.error) << answer.error->message;
    EXPECT_EQ(answer.output(), scripted_output(model_, second));
    EXPECT_EQ(answer.figures.at(prefill).pulled_tokens, pulled);
    EXPECT_EQ(answer.figures.at(prefill).cached_tokens, 0U);
    cluster_.settle();
    EXPECT_TRUE(cluster_.all_clean());
  }
}

TEST_P(NodesUcx, WarmPrefixMovesOnlyTheRest) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest first = make_request(1, 100, 6);
  cluster_.start(first, "p0", "d0");
  cluster_.finish(first);
  cluster_.settle();
  GenerateRequest second = make_request(2, 100, 6);
  second.prompt.push_back(3);
  cluster_.start(second, "p0", "d0");
  const Answer& answer = cluster_.finish(second);
  EXPECT_EQ(answer.output(), scripted_output(model_, second));
  EXPECT_EQ(answer.figures.at("d0").kv_bytes_moved,
            cluster_.node("d0").kv().layout().block_bytes_all_layers());
  cluster_.settle();
}

TEST_P(NodesUcx, CancelAnywhereLeavesNoBlockBehind) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  for (std::uint64_t turns = 0; turns < 400; turns += 5) {
    const GenerateRequest request = make_request(100 + turns, 200, 10, turns);
    cluster_.start(request, "p0", "d0");
    for (std::uint64_t i = 0; i < turns; ++i) {
      if (!cluster_.executor().run_one()) {
        std::this_thread::yield();  // the data plane's threads have the word
      }
    }
    cluster_.cancel(request);
    cluster_.settle();
    ASSERT_TRUE(cluster_.all_clean()) << turns;
  }
}

INSTANTIATE_TEST_SUITE_P(Lanes,
                         NodesUcx,
                         ::testing::Values("tcp", "shm", "shm_put"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace baton::testing
