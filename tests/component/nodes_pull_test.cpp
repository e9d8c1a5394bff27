// A prefill node that fetches a prefix from the decode node instead of computing it: the same
// tokens, and computing as before when anything goes wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/wire/convert.h"
#include "tests/support/fake_transport.h"
#include "tests/support/mini_cluster.h"

namespace baton::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class NodesPull : public ::testing::Test {
 protected:
  explicit NodesPull(ClusterConfig config = default_config())
      : cluster_([this](const std::string& name,
                        KvArenaView arena) { return network_.make_transport(name, arena); },
                 model_,
                 std::move(config)) {}

  const Answer& ask(const GenerateRequest& request, const std::string& prefill = "p0") {
    cluster_.start(request, prefill, "d0");
    const Answer& answer = cluster_.finish(request);
    EXPECT_FALSE(answer.error) << answer.error->message;
    EXPECT_FALSE(answer.repeated);
    EXPECT_EQ(answer.output(), scripted_output(model_, request));
    return answer;
  }

  // A first turn by way of another prefill node: d0 holds prompt and answer, p0 nothing.
  GenerateRequest first_turn(std::size_t prompt = 100, std::uint32_t tokens = 30) {
    cluster_.add("prefill", "warm");
    const GenerateRequest first = make_request(1, prompt, tokens);
    const Answer answer = ask(first, "warm");
    cluster_.settle();
    GenerateRequest second = first;
    second.id = RequestId{2};
    const std::vector<TokenId> output = answer.output();
    second.prompt.insert(second.prompt.end(), output.begin(), output.end());
    second.prompt.insert(second.prompt.end(), {5, 6, 7, 8, 9});
    return second;
  }
  std::uint64_t computed() { return cluster_.node("p0").runner().num_tokens(); }
  bool is_from_decode(const FakeMessage& message) { return message.from == "d0"; }

  const ScriptedOptions model_;
  FakeNetwork network_{
      [this](std::function<void()> task) { cluster_.executor().post(std::move(task)); }};
  MiniCluster cluster_;
};

TEST_F(NodesPull, PrefixThatOnlyDecodeHoldsIsFetched) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest second = first_turn();  // 135 tokens, of which d0 holds eight blocks
  const Answer& answer = ask(second);
  EXPECT_EQ(answer.figures.at("d0").prefix_blocks_held, 8U);
  EXPECT_EQ(answer.figures.at("p0").pulled_tokens, 128U);
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 0U);
  EXPECT_EQ(computed(), 7U);
  EXPECT_EQ(answer.figures.at("d0").kv_bytes_moved,
            cluster_.node("d0").kv().layout().block_bytes_all_layers());
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
  // It is in p0's own cache now.
  GenerateRequest third = second;
  third.id = RequestId{3};
  third.prompt.push_back(4);
  const Answer& again = ask(third);
  EXPECT_EQ(again.figures.at("p0").pulled_tokens, 0U);
  EXPECT_EQ(again.figures.at("p0").cached_tokens, 128U);
}

TEST_F(NodesPull, OnlyWhatTheOwnCacheLacksIsFetched) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  GenerateRequest begin = make_request(9, 100, 1);
  begin.prompt.resize(50);
  ask(begin);  // three blocks in p0's cache, nothing in d0's
  const GenerateRequest second = first_turn();
  const Answer& answer = ask(second);
  EXPECT_EQ(answer.figures.at("p0").cached_tokens, 48U);
  EXPECT_EQ(answer.figures.at("p0").pulled_tokens, 80U);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesPull, BlocksOfAnotherSizeAreConvertedBothWays) {
  for (const std::uint32_t block : {16U, 64U}) {
    SCOPED_TRACE(block);
    ScriptedOptions decode = model_;
    decode.block_tokens = 32;
    cluster_.use_model(decode);
    const std::string d = fmt::format("d{}", block);
    cluster_.add("decode", d);
    ScriptedOptions prefill = model_;
    prefill.block_tokens = block;
    cluster_.use_model(prefill);
    const std::string cold = fmt::format("cold{}", block);
    const std::string warm = fmt::format("warm{}", block);
    cluster_.add("prefill", warm);
    cluster_.add("prefill", cold);
    GenerateRequest first = make_request(block, 100, 40);
    cluster_.start(first, warm, d);
    const std::vector<TokenId> output = cluster_.finish(first).output();
    EXPECT_EQ(output, scripted_output(model_, first));
    cluster_.settle();
    GenerateRequest second = first;
    second.id = RequestId{block + 1000};
    second.prompt.insert(second.prompt.end(), output.begin(), output.end());
    second.prompt.insert(second.prompt.end(), {1, 2, 3});
    cluster_.start(second, cold, d);
    const Answer& answer = cluster_.finish(second);
    EXPECT_EQ(answer.output(), scripted_output(model_, second));
    EXPECT_EQ(answer.figures.at(cold).pulled_tokens, 128U);  // four of 32
    cluster_.settle();
    EXPECT_TRUE(cluster_.all_clean());
  }
}

TEST_F(NodesPull, NodeThatHoldsLessSendsLess) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest second = first_turn();
  // The blocks are pinned while the grant lasts, so only a node that answers less shows it: here
  // the grant speaks of more than the node finds, as its cache holds other tokens.
  const KvGrant grant = cluster_.reserve(second, "d0");
  GenerateRequest other = second;
  other.id = RequestId{3};
  other.prompt[70] = (other.prompt[70] + 1) % 1000;  // d0 holds four blocks of this
  cluster_.prefill(other, "p0", grant);
  cluster_.run_until([&] { return cluster_.answer(other).figures.contains("p0"); });
  EXPECT_EQ(cluster_.answer(other).figures.at("p0").pulled_tokens, 64U);
  EXPECT_EQ(cluster_.answer(other).tokens.at(0), scripted_output(model_, other).front());
  cluster_.cancel(second);
  cluster_.cancel(other);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

// Whatever a message of the pull meets, the request is computed and the tokens are the same.
TEST_F(NodesPull, EveryFateOfAMessageEndsInTheSameTokens) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  std::uint64_t id = 100;
  for (const FakeFate fate :
       {FakeFate::Drop, FakeFate::Duplicate, FakeFate::Late, FakeFate::Stall, FakeFate::Fail}) {
    for (const std::size_t good : {0U, 1U, 2U}) {
      SCOPED_TRACE(fmt::format("fate {} after {}", static_cast<int>(fate), good));
      const std::string prefill = fmt::format("p{}", id);
      const std::string warm = fmt::format("w{}", id);
      cluster_.add("prefill", prefill);
      cluster_.add("prefill", warm);
      const GenerateRequest first = make_request(id, 100, 30, id);
      ask(first, warm);
      cluster_.settle();
      GenerateRequest second = first;
      second.id = RequestId{id + 1000};
      second.prompt.insert(second.prompt.end(), {5, 6, 7});
      std::size_t messages = 0;
      network_.set_hook([&](const FakeMessage& message) {
        return is_from_decode(message) && messages++ >= good ? fate : FakeFate::Deliver;
      });
      const Answer& answer = ask(second, prefill);
      EXPECT_EQ(answer.figures.at(prefill).pulled_tokens, fate == FakeFate::Duplicate ? 96U : 0U);
      EXPECT_GT(messages, good);
      network_.set_hook(nullptr);
      network_.release_late();
      network_.release_stalled();
      cluster_.settle();
      EXPECT_TRUE(cluster_.all_clean());
      ++id;
    }
  }
}

// A lost pull's bytes that come later touch nothing: its blocks are somebody else's by then.
TEST_F(NodesPull, BlocksOfAFailedPullAreInQuarantineUntilQuiet) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest second = first_turn();
  network_.set_hook([&](const FakeMessage& message) {
    return is_from_decode(message) ? FakeFate::Stall : FakeFate::Deliver;
  });
  const Answer& answer = ask(second);
  EXPECT_EQ(answer.figures.at("p0").pulled_tokens, 0U);
  network_.set_hook(nullptr);
  const std::uint64_t before = cluster_.node("p0").transport().stats().messages_dropped;
  network_.release_stalled();
  cluster_.settle();
  EXPECT_GT(cluster_.node("p0").transport().stats().messages_dropped, before);
  EXPECT_EQ(cluster_.node("p0").transport().stats().bytes_received, 0U);
  EXPECT_TRUE(cluster_.all_clean());
}

// A message that hangs in a data connection pins its prefix on the decode node only so long.
TEST_F(NodesPull, PullThatDoesNotComeToRestGivesUpItsConnection) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest second = first_turn();
  network_.set_hook([&](const FakeMessage& message) {
    return is_from_decode(message) ? FakeFate::Stall : FakeFate::Deliver;
  });
  EXPECT_EQ(ask(second).figures.at("p0").pulled_tokens, 0U);
  cluster_.executor().run_until_idle();
  EXPECT_FALSE(cluster_.node("d0").is_clean());
  cluster_.executor().advance(std::chrono::seconds(6));
  EXPECT_TRUE(cluster_.all_clean()) << cluster_.node("d0").describe_blocks();
  network_.set_hook(nullptr);
  network_.release_stalled();
  GenerateRequest other = make_request(3, 100, 30, 3);  // p0 pulls over a new connection
  ask(other, "warm");
  cluster_.settle();
  other.id = RequestId{4};
  other.prompt.push_back(5);
  EXPECT_GT(ask(other).figures.at("p0").pulled_tokens, 0U);
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesPull, CancelAfterAnyTaskLeavesNoBlockBehind) {
  cluster_.add("decode", "d0", 200);
  for (std::size_t tasks = 0; tasks < 90; ++tasks) {
    const std::string prefill = fmt::format("p{}", tasks);
    const std::string warm = fmt::format("w{}", tasks);
    cluster_.add("prefill", prefill);
    cluster_.add("prefill", warm);
    const GenerateRequest first = make_request(1000 + tasks, 70, 3, tasks);
    ask(first, warm);
    cluster_.settle();
    GenerateRequest second = first;
    second.id = RequestId{5000 + tasks};
    second.prompt.insert(second.prompt.end(), {5, 6, 7});
    cluster_.start(second, prefill, "d0");
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    cluster_.cancel(second);
    cluster_.settle();
    ASSERT_TRUE(cluster_.all_clean()) << tasks;
    ASSERT_EQ(cluster_.node(prefill).prefill().pulls().num_open(), 0U) << tasks;
    cluster_.kill(prefill);
    cluster_.kill(warm);
  }
}

TEST_F(NodesPull, DecodeLostAfterAnyTaskFreesThePrefillNode) {
  for (std::size_t tasks = 5; tasks < 60; tasks += 2) {
    const std::string d = fmt::format("d{}", tasks);
    const std::string p = fmt::format("p{}", tasks);
    const std::string w = fmt::format("w{}", tasks);
    cluster_.add("decode", d);
    cluster_.add("prefill", p);
    cluster_.add("prefill", w);
    const GenerateRequest first = make_request(1000 + tasks, 70, 3, tasks);
    cluster_.start(first, w, d);
    cluster_.finish(first);
    cluster_.settle();
    GenerateRequest second = first;
    second.id = RequestId{5000 + tasks};
    second.prompt.insert(second.prompt.end(), {5, 6, 7});
    cluster_.start(second, p, d);
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    network_.kill(d);
    cluster_.kill(d);
    cluster_.executor().run_until_idle();
    cluster_.cancel(second);
    cluster_.settle();
    ASSERT_TRUE(cluster_.node(p).is_clean()) << tasks << cluster_.node(p).describe_blocks();
    cluster_.kill(p);
    cluster_.kill(w);
  }
}

TEST_F(NodesPull, ForgedPullIsRefused) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest second = first_turn();
  wire::Hello hello = cluster_.hello("p0");
  hello.set_node("intruder");
  hello.set_role("prefill");
  hello.set_cluster_token("secret");
  hello.set_worker_address("p0");
  auto intruder = cluster_.fabric().network("intruder");
  std::unique_ptr<Channel> channel;
  auto dial = intruder->dial(cluster_.node("d0").decode().control_address(),
                             hello,
                             seconds(1),
                             [&](Result<Dialed> result) {
                               ASSERT_TRUE(result);
                               channel = std::move(result->channel);
                             });
  ASSERT_TRUE(cluster_.run_until([&] { return channel != nullptr; }));
  channel->set_handlers([](const wire::Frame&) {}, [](const Error&) {});

  KvGrant grant;
  grant.node = "p0";
  grant.lease = {1, 2};
  grant.layout = cluster_.node("p0").kv().layout();
  grant.layout_hash = grant.layout.hash();
  grant.runs = {{BlockId{0}, 2}};
  const auto refused = [&](const KvGrant& lease, std::size_t tokens, std::uint32_t blocks) {
    wire::Frame frame;
    *frame.mutable_pull()->mutable_grant() = to_wire(lease);
    frame.mutable_pull()->mutable_tokens()->Add(
        second.prompt.begin(), second.prompt.begin() + static_cast<std::ptrdiff_t>(tokens));
    frame.mutable_pull()->set_blocks(blocks);
    std::optional<ErrorCode> code;
    channel->call(frame, seconds(5), [&](const Result<wire::Frame>& answer) {
      code = answer ? ErrorCode::Internal : answer.error().code;
    });
    cluster_.run_until([&] { return code.has_value(); });
    return *code;
  };
  EXPECT_EQ(refused(grant, 31, 2), ErrorCode::ProtocolError);
  EXPECT_EQ(refused(grant, 32, 3), ErrorCode::ProtocolError);
  KvGrant empty = grant;
  empty.runs = {};
  EXPECT_EQ(refused(empty, 0, 0), ErrorCode::ProtocolError);
  KvGrant other = grant;
  other.layout.head_dim = 32;
  other.layout_hash = other.layout.hash();
  EXPECT_EQ(refused(other, 32, 2), ErrorCode::Mismatch);
  KvGrant late = grant;
  late.prefix_blocks = 6;
  late.runs = {{BlockId{0}, 2}};
  EXPECT_EQ(refused(late, 128, 2), ErrorCode::Internal);  // it holds that: answered
  // A lease that p0 never gave: the bytes are dropped there.
  cluster_.settle();
  EXPECT_GT(cluster_.node("p0").transport().stats().messages_dropped, 0U);
  EXPECT_EQ(cluster_.node("p0").transport().stats().bytes_received, 0U);
  EXPECT_TRUE(cluster_.all_clean());
}

class PullOff : public NodesPull {
 protected:
  PullOff()
      : NodesPull([] {
          ClusterConfig config;
          config.transfer.pull = false;
          return config;
        }()) {}
};

TEST_F(PullOff, PrefixIsComputed) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest second = first_turn();
  const Answer& answer = ask(second);
  EXPECT_EQ(answer.figures.at("p0").pulled_tokens, 0U);
  EXPECT_EQ(computed(), second.prompt.size());
  EXPECT_TRUE(cluster_.hello("p0").worker_address().empty());
}

}  // namespace
}  // namespace baton::testing
