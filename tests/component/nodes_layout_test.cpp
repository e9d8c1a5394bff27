// Prefill and decode nodes whose blocks have other sizes or another element order: the same tokens,
// whole blocks of the decode node's layout on the wire, and nothing left behind when it goes wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/wire/convert.h"
#include "tests/support/fake_transport.h"
#include "tests/support/mini_cluster.h"

namespace baton::testing {
namespace {

struct Shape {
  std::uint32_t block_tokens;
  KvOrder order = KvOrder::KeysByDimValuesByToken;
};
struct Pair {
  Shape prefill;
  Shape decode;
};

ScriptedOptions model_of(const Shape& shape) {
  return {.block_tokens = shape.block_tokens, .order = shape.order};
}

class NodesLayout : public ::testing::TestWithParam<Pair> {
 protected:
  explicit NodesLayout(ClusterConfig config = default_config())
      : cluster_([this](const std::string& name,
                        KvArenaView arena) { return network_.make_transport(name, arena); },
                 model_,
                 std::move(config)) {
    cluster_.use_model(model_of(GetParam().decode));
    cluster_.add("decode", "d0", 80);
    cluster_.use_model(model_of(GetParam().prefill));
    cluster_.add("prefill", "p0", 80);
  }

  const Answer& ask(const GenerateRequest& request) {
    cluster_.start(request, "p0", "d0");
    const Answer& answer = cluster_.finish(request);
    EXPECT_FALSE(answer.error) << answer.error->message;
    EXPECT_FALSE(answer.repeated);
    EXPECT_EQ(answer.output(), scripted_output(model_, request));
    return answer;
  }
  const KvLayout& decode_layout() { return cluster_.node("d0").kv().layout(); }
  std::uint32_t prefill_block() { return cluster_.node("p0").kv().layout().block_tokens; }

  const ScriptedOptions model_;  // a token depends neither on block size nor on order
  FakeNetwork network_{
      [this](std::function<void()> task) { cluster_.executor().post(std::move(task)); }};
  MiniCluster cluster_;
};

TEST_P(NodesLayout, TokensAreTheSameForEveryLengthOfPrompt) {
  for (std::uint64_t length : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129}) {
    const Answer& answer = ask(make_request(length, length, 12, length));
    EXPECT_EQ(answer.figures.at("d0").kv_bytes_moved,
              decode_layout().blocks_for(length) * decode_layout().block_bytes_all_layers())
        << length;
    cluster_.settle();
    ASSERT_TRUE(cluster_.all_clean()) << length;
  }
}

TEST_P(NodesLayout, PrefixThatDecodeHoldsIsNotSentAgain) {
  const GenerateRequest first = make_request(1, 100, 6);
  ask(first);
  cluster_.settle();
  GenerateRequest second = first;
  second.id = RequestId{2};
  second.prompt.insert(second.prompt.end(), {5, 6, 7});
  const Answer& answer = ask(second);
  const std::uint32_t block = decode_layout().block_tokens;
  const std::uint32_t held = 100 / block;
  EXPECT_EQ(answer.figures.at("d0").prefix_blocks_held, held);
  EXPECT_EQ(answer.figures.at("d0").kv_bytes_moved,
            (decode_layout().blocks_for(103) - held) * decode_layout().block_bytes_all_layers());
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 100 / prefill_block() * prefill_block());
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_P(NodesLayout, CancelAfterAnyTaskLeavesNoBlockBehind) {
  for (std::size_t tasks = 0; tasks < 120; ++tasks) {
    const GenerateRequest request = make_request(1000 + tasks, 90, 6, tasks);
    cluster_.start(request, "p0", "d0");
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    cluster_.cancel(request);
    cluster_.settle();
    ASSERT_TRUE(cluster_.all_clean()) << tasks;
  }
}

TEST_P(NodesLayout, FailureInMidTransferEndsTheRequestAndFreesItsBlocks) {
  for (std::size_t good = 0; good < 6; ++good) {
    std::size_t messages = 0;
    network_.set_hook(
        [&](const FakeMessage&) { return messages++ < good ? FakeFate::Deliver : FakeFate::Fail; });
    const GenerateRequest request = make_request(1 + good, 90, 6, good);
    cluster_.start(request, "p0", "d0");
    const Answer& answer = cluster_.finish(request);
    network_.set_hook(nullptr);
    if (messages > good) {
      ASSERT_TRUE(answer.error) << good;
    }
    cluster_.cancel(request);
    cluster_.settle();
    ASSERT_TRUE(cluster_.all_clean()) << good;
    ask(make_request(100 + good, 90, 6, good));
  }
}

// A grant whose layout is not the one that the decode node's Welcome told.
TEST_P(NodesLayout, GrantOfAWrongLayoutIsRefused) {
  const GenerateRequest request = make_request(1, 90, 6);
  KvGrant grant = cluster_.reserve(request, "d0");
  EXPECT_EQ(grant.layout, decode_layout());

  const auto expect_refused = [&](const GenerateRequest& asked, ErrorCode code) {
    cluster_.prefill(asked, "p0", grant);
    const Answer& answer = cluster_.finish(asked);
    ASSERT_TRUE(answer.error);
    EXPECT_EQ(answer.error->code, code) << answer.error->message;
  };
  const KvGrant honest = grant;
  grant.layout.layers += 1;
  grant.layout_hash = grant.layout.hash();
  expect_refused(request, ErrorCode::Mismatch);
  // Convertible, but not what the decode node has: its blocks would be filled wrongly.
  grant = honest;
  grant.layout.order = honest.layout.order == KvOrder::ByTokenAndHead ? KvOrder::ByHeadAndToken
                                                                      : KvOrder::ByTokenAndHead;
  grant.layout_hash = grant.layout.hash();
  GenerateRequest other = request;
  other.id = RequestId{2};
  expect_refused(other, ErrorCode::Mismatch);
  cluster_.cancel(request);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
  EXPECT_EQ(cluster_.node("d0").transport().stats().bytes_received, 0U);
}

class SmallChunksLayout : public NodesLayout {
 protected:
  SmallChunksLayout()
      : NodesLayout([] {
          ClusterConfig config;
          config.prefill.chunk_tokens = 7;
          config.prefill.step_tokens = 16;
          return config;
        }()) {}
};

TEST_P(SmallChunksLayout, ChunksThatEndInMidBlockDoNotChangeTokens) {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    requests.push_back(make_request(1 + i, 60 + 33 * i, 8, i));
    cluster_.start(requests.back(), "p0", "d0");
  }
  for (const GenerateRequest& request : requests) {
    const Answer& answer = cluster_.finish(request);
    ASSERT_FALSE(answer.error) << answer.error->message;
    EXPECT_EQ(answer.output(), scripted_output(model_, request));
  }
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

std::string name_of(const ::testing::TestParamInfo<Pair>& info) {
  const auto text = [](const Shape& shape) {
    return fmt::format("{}order{}", shape.block_tokens, static_cast<int>(shape.order));
  };
  return text(info.param.prefill) + "_to_" + text(info.param.decode);
}

const auto kPairs = ::testing::Values(Pair{{16}, {32}},
                                      Pair{{32}, {16}},
                                      Pair{{64}, {16}},
                                      Pair{{48}, {32}},
                                      Pair{{16}, {16, KvOrder::ByHeadAndToken}},
                                      Pair{{16, KvOrder::ByTokenAndHead}, {64}});
INSTANTIATE_TEST_SUITE_P(Pairs, NodesLayout, kPairs, name_of);
INSTANTIATE_TEST_SUITE_P(Pairs, SmallChunksLayout, kPairs, name_of);

}  // namespace
}  // namespace baton::testing
