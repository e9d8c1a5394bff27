// What goes wrong between nodes: cancels at every moment, lost processes, forged and late messages,
// expired leases. Every case ends with all blocks free or cached.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/wire/convert.h"
#include "tests/support/fake_transport.h"
#include "tests/support/mini_cluster.h"

namespace baton::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class NodeFaults : public ::testing::Test {
 protected:
  NodeFaults()
      : cluster_([this](const std::string& name,
                        KvArenaView arena) { return network_.make_transport(name, arena); },
                 model_) {
    cluster_.add("decode", "d0");
    cluster_.add("prefill", "p0");
  }

  decode_node::DecodeNode& decode() { return cluster_.node("d0").decode(); }

  // A connection of somebody who knows the cluster token and says to be a prefill node.
  std::unique_ptr<Channel> dial_decode() {
    wire::Hello hello = cluster_.hello("p0");
    hello.set_node("intruder");
    hello.set_role("prefill");
    hello.set_cluster_token("secret");
    std::unique_ptr<Channel> channel;
    intruder_ = cluster_.fabric().network("intruder");
    auto dial =
        intruder_->dial(decode().control_address(), hello, seconds(1), [&](Result<Dialed> result) {
          ASSERT_TRUE(result) << result.error().message;
          channel = std::move(result->channel);
        });
    cluster_.run_until([&] { return channel != nullptr; });
    channel->set_handlers([](const wire::Frame&) {}, [](const Error&) {});
    return channel;
  }

  // Reserve without Prefill.
  KvGrant reserve(const GenerateRequest& request) { return cluster_.reserve(request, "d0"); }

  wire::Commit commit_of(const KvGrant& grant, const GenerateRequest& request) {
    const KvLayout& layout = cluster_.node("d0").kv().layout();
    wire::Commit commit;
    set_lease(commit, grant.lease, grant.epoch);
    commit.set_first_token(1);
    commit.set_token_count(static_cast<std::uint32_t>(request.prompt.size()));
    commit.set_bytes(layout.blocks_for(request.prompt.size()) * layout.block_bytes_all_layers());
    return commit;
  }

  Status send_commit(Channel& channel, const wire::Commit& commit) {
    wire::Frame frame;
    *frame.mutable_commit() = commit;
    bool is_answered = false;
    Status status;
    channel.call(frame, seconds(5), [&](const Result<wire::Frame>& answer) {
      is_answered = true;
      if (!answer) {
        status = std::unexpected(answer.error());
      }
    });
    cluster_.run_until([&] { return is_answered; });
    return status;
  }

  ScriptedOptions model_;
  FakeNetwork network_{
      [this](std::function<void()> task) { cluster_.executor().post(std::move(task)); }};
  std::unique_ptr<Network> intruder_;
  MiniCluster cluster_;
};

TEST_F(NodeFaults, CancelAfterAnyTaskLeavesNoBlockBehind) {
  std::size_t cancelled_in_work = 0;
  for (std::size_t tasks = 0; tasks < 200; ++tasks) {
    const GenerateRequest request = make_request(1000 + tasks, 90, 6, tasks);
    cluster_.start(request, "p0", "d0");
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    cancelled_in_work += cluster_.answer(request).is_over() ? 0 : 1;
    cluster_.cancel(request);
    cluster_.settle();
    ASSERT_TRUE(cluster_.all_clean()) << tasks << ": d0 " << cluster_.node("d0").describe_blocks()
                                      << "; p0 " << cluster_.node("p0").describe_blocks();
    ASSERT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U) << tasks;
    ASSERT_EQ(decode().scheduler().num_running(), 0U) << tasks;
  }
  EXPECT_GT(cancelled_in_work, 20U);
}

TEST_F(NodeFaults, PrefillLostAfterAnyTaskFreesItsLeases) {
  for (std::size_t tasks = 0; tasks < 40; ++tasks) {
    const std::string name = fmt::format("p{}", tasks + 1);
    cluster_.add("prefill", name);
    const GenerateRequest request = make_request(1000 + tasks, 90, 6, tasks);
    cluster_.start(request, name, "d0");
    for (std::size_t i = 0; i < tasks; ++i) {
      cluster_.executor().run_one();
    }
    network_.kill(name);
    cluster_.kill(name);
    cluster_.run_until([&] { return cluster_.channel(name) == nullptr; });
    cluster_.executor().run_until_idle();
    if (!cluster_.answer(request).is_over()) {
      cluster_.executor().advance(seconds(2));
    }
    // A lease that the lost node never named ends by the gateway's cancel, as it does in a cluster.
    cluster_.cancel(request);
    cluster_.settle();
    ASSERT_TRUE(cluster_.node("d0").is_clean())
        << tasks << ": " << cluster_.node("d0").describe_blocks();
  }
  EXPECT_GT(decode().grants().stats().revoked, 0U);
}

TEST_F(NodeFaults, PrefillLostMidTransferEndsTheRequestWithAnError) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  const GenerateRequest request = make_request(1, 90, 6);
  cluster_.start(request, "p0", "d0");
  cluster_.executor().run_until_idle();
  EXPECT_EQ(decode().grants().num_open(), 1U);
  network_.kill("p0");
  cluster_.kill("p0");
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerDead);
  cluster_.settle();
  EXPECT_TRUE(cluster_.node("d0").is_clean());
}

TEST_F(NodeFaults, DamagedBlocksAreNeverDecoded) {
  for (const FakeFate fate : {FakeFate::Flip, FakeFate::Swap, FakeFate::Tear}) {
    network_.set_hook([fate](const FakeMessage& message) {
      return message.header.layer == 1 ? fate : FakeFate::Deliver;
    });
    const auto number = static_cast<std::uint64_t>(fate) + 1;
    const GenerateRequest request = make_request(number, 90, 6, number);
    cluster_.start(request, "p0", "d0");
    const Answer& answer = cluster_.finish(request);
    ASSERT_TRUE(answer.error);
    EXPECT_EQ(answer.error->code, ErrorCode::ChecksumMismatch) << answer.error->message;
    cluster_.settle();
    EXPECT_TRUE(cluster_.all_clean()) << cluster_.node("d0").describe_blocks();
    EXPECT_EQ(decode().grants().stats().verified, 0U);
  }
  network_.set_hook(nullptr);
  const GenerateRequest request = make_request(1000, 90, 6, 7);
  cluster_.start(request, "p0", "d0");
  EXPECT_FALSE(cluster_.finish(request).error);
  EXPECT_EQ(decode().grants().stats().verified, 1U);
}

TEST_F(NodeFaults, DecodeLostMidTransferIsToldToTheGateway) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  const GenerateRequest request = make_request(1, 90, 6);
  cluster_.start(request, "p0", "d0");
  cluster_.executor().run_until_idle();
  network_.kill("d0");
  cluster_.kill("d0");
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerDead);
  network_.release_stalled();
  cluster_.settle();
  EXPECT_TRUE(cluster_.node("p0").is_clean());
}

TEST_F(NodeFaults, DecodeStartedAgainIsDialledAgain) {
  const GenerateRequest first = make_request(1, 60, 4);
  cluster_.start(first, "p0", "d0");
  cluster_.finish(first);
  cluster_.kill("d0");
  cluster_.add("decode", "d1");
  const GenerateRequest second = make_request(2, 60, 4, 2);
  cluster_.start(second, "p0", "d1");
  const Answer& answer = cluster_.finish(second);
  EXPECT_FALSE(answer.error);
  EXPECT_EQ(answer.output(), scripted_output(model_, second));
  cluster_.settle();
}

TEST_F(NodeFaults, ForgedLeaseIsRefusedAndCounted) {
  const GenerateRequest request = make_request(1, 40, 4);
  const KvGrant grant = reserve(request);
  const auto intruder = dial_decode();
  wire::Commit forged = commit_of(grant, request);
  forged.set_lease_low(forged.lease_low() ^ 1);
  Status status = send_commit(*intruder, forged);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::GrantRevoked);
  wire::Commit old = commit_of(grant, request);
  old.set_epoch(old.epoch() + 1);
  EXPECT_FALSE(send_commit(*intruder, old));
  EXPECT_EQ(decode().grants().stats().refused_commits, 2U);
  EXPECT_EQ(decode().grants().num_open(), 1U);  // the real one is untouched
  cluster_.cancel(request);
  cluster_.settle();
}

TEST_F(NodeFaults, CommitThatDisagreesEndsTheGrant) {
  const auto intruder = dial_decode();
  for (int field = 0; field < 5; ++field) {
    const GenerateRequest request = make_request(1 + field, 40, 4);
    wire::Commit commit = commit_of(reserve(request), request);
    switch (field) {
      case 0:
        commit.set_token_count(commit.token_count() + 1);
        break;
      case 1:
        commit.set_bytes(commit.bytes() - 1);
        break;
      case 2:
        commit.set_first_token(-1);
        break;
      case 3:
        commit.set_digest_mode(3);
        break;
      default:
        commit.set_first_index(7);
    }
    const Status status = send_commit(*intruder, commit);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::ProtocolError);
    cluster_.settle();
    EXPECT_TRUE(cluster_.node("d0").is_clean());
  }
}

TEST_F(NodeFaults, AFrameOfAnotherRoleIsRefused) {
  const GenerateRequest request = make_request(1, 40, 4);
  const KvGrant grant = reserve(request);
  const auto intruder = dial_decode();
  wire::Frame reserve_frame;
  *reserve_frame.mutable_reserve()->mutable_request() = to_wire(make_request(2, 40, 4));
  wire::Frame tokens;
  tokens.mutable_tokens();
  wire::Frame empty;
  for (const wire::Frame& frame : {reserve_frame, tokens, empty}) {
    std::optional<Result<wire::Frame>> answer;
    intruder->call(
        frame, seconds(5), [&](const Result<wire::Frame>& result) { answer.emplace(result); });
    ASSERT_TRUE(cluster_.run_until([&] { return answer.has_value(); }));
    ASSERT_FALSE(*answer);
    EXPECT_EQ(answer->error().code, ErrorCode::ProtocolError) << answer->error().message;
  }
  EXPECT_EQ(decode().grants().num_open(), 1U);  // the real one, and no other
  EXPECT_TRUE(decode().grants().stats().refused_commits == 0U);
  cluster_.cancel(request);
  cluster_.settle();
}

TEST_F(NodeFaults, SecondCommitIsRefused) {
  const GenerateRequest request = make_request(1, 40, 4);
  const KvGrant grant = reserve(request);
  const auto intruder = dial_decode();
  EXPECT_TRUE(send_commit(*intruder, commit_of(grant, request)));  // its bytes never come
  const Status again = send_commit(*intruder, commit_of(grant, request));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::GrantRevoked);
  EXPECT_EQ(decode().scheduler().num_running(), 0U);
  cluster_.cancel(request);
  cluster_.settle();
}

TEST_F(NodeFaults, SilentLeaseExpiresAndItsLateCommitIsRefused) {
  const GenerateRequest request = make_request(1, 40, 4);
  const KvGrant grant = reserve(request);
  cluster_.executor().advance(grant.ttl + milliseconds(1));
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerStalled);
  EXPECT_EQ(decode().grants().stats().expired, 1U);
  const auto intruder = dial_decode();
  EXPECT_FALSE(send_commit(*intruder, commit_of(grant, request)));
  cluster_.settle();
  EXPECT_TRUE(cluster_.node("d0").is_clean());
}

TEST_F(NodeFaults, TransferThatStandsStillHandsTheRequestBack) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Stall; });
  const GenerateRequest request = make_request(1, 90, 6);
  cluster_.start(request, "p0", "d0");
  cluster_.executor().run_until_idle();
  cluster_.executor().advance(milliseconds(1'900));
  EXPECT_FALSE(cluster_.answer(request).is_over());
  cluster_.executor().advance(milliseconds(600));
  ASSERT_TRUE(cluster_.answer(request).error);
  EXPECT_EQ(cluster_.answer(request).error->code, ErrorCode::PeerStalled);
  EXPECT_TRUE(is_retryable(cluster_.answer(request).error->code));
  EXPECT_NE(cluster_.channel("p0"), nullptr);  // the nodes are there
  EXPECT_NE(cluster_.channel("d0"), nullptr);
  EXPECT_EQ(decode().grants().num_open(), 0U);
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 1U);  // its blocks are on the way
  network_.set_hook(nullptr);
  network_.release_stalled();
  cluster_.settle();
  EXPECT_EQ(cluster_.node("p0").prefill().scheduler().num_jobs(), 0U);
  EXPECT_TRUE(cluster_.all_clean()) << cluster_.node("d0").describe_blocks();
  const GenerateRequest next = make_request(2, 90, 6);
  cluster_.start(next, "p0", "d0");
  EXPECT_EQ(cluster_.finish(next).output(), scripted_output(model_, next));
  cluster_.settle();
}

// Its link works for others, so that it is slow and does not stand still.
TEST_F(NodeFaults, LeaseOfAWorkingPrefillDoesNotExpire) {
  const GenerateRequest request = make_request(1, 90, 6);
  network_.set_hook([&](const FakeMessage& message) {
    return message.header.lease == cluster_.grant(request).lease ? FakeFate::Stall
                                                                 : FakeFate::Deliver;
  });
  cluster_.start(request, "p0", "d0");
  cluster_.executor().run_until_idle();
  for (std::uint64_t i = 0; i < 100; ++i) {
    cluster_.executor().advance(seconds(1));
    const GenerateRequest other = make_request(2 + i, 20, 2, 2 + i);
    cluster_.start(other, "p0", "d0");
    EXPECT_FALSE(cluster_.finish(other).error);
  }
  EXPECT_EQ(decode().grants().stats().expired, 0U);
  network_.set_hook(nullptr);
  network_.release_stalled();
  EXPECT_EQ(cluster_.finish(request).output(), scripted_output(model_, request));
  cluster_.settle();
}

TEST_F(NodeFaults, LateBytesOfACancelledLeaseChangeNothing) {
  network_.set_hook([](const FakeMessage&) { return FakeFate::Late; });
  const GenerateRequest victim = make_request(1, 90, 6);
  cluster_.start(victim, "p0", "d0");
  cluster_.executor().run_until_idle();
  cluster_.cancel(victim);
  cluster_.settle();
  network_.set_hook(nullptr);
  const GenerateRequest next = make_request(2, 90, 20, 9);
  cluster_.start(next, "p0", "d0");
  cluster_.run_until([&] { return decode().scheduler().num_running() == 1; });
  network_.release_late();
  EXPECT_EQ(cluster_.finish(next).output(), scripted_output(model_, next));
  EXPECT_GT(cluster_.node("d0").transport().stats().messages_dropped, 0U);
  cluster_.settle();
}

TEST_F(NodeFaults, LostGatewayCancelsItsRequests) {
  const GenerateRequest request = make_request(1, 60, 900);
  cluster_.start(request, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(request).tokens.size() > 5; }));
  cluster_.close_gateway("d0");
  ASSERT_TRUE(cluster_.run_until([&] { return decode().scheduler().num_running() == 0; }));
  cluster_.settle();
  EXPECT_TRUE(cluster_.node("d0").is_clean());
}

TEST_F(NodeFaults, RequestsThatCannotRunAreRefusedByName) {
  const auto error_of = [&](const GenerateRequest& request) {
    cluster_.start(request, "p0", "d0");
    return *cluster_.finish(request).error;
  };
  GenerateRequest request = make_request(1, 5000, 4);
  EXPECT_EQ(error_of(request).code, ErrorCode::ContextTooLong);
  request = make_request(2, 40, 4);
  request.model = "another";
  EXPECT_EQ(error_of(request).code, ErrorCode::NotFound);
  request = make_request(3, 40, 4000);  // 64 blocks of 16 hold 1024
  const Error size = error_of(request);
  EXPECT_EQ(size.code, ErrorCode::InvalidArgument);
  EXPECT_NE(size.message.find("max_tokens"), std::string::npos);
  EXPECT_NE(size.message.find("64"), std::string::npos);
  const GenerateRequest large = make_request(4, 40, 900);
  cluster_.start(large, "p0", "d0");
  // Blocks for more of its answer than are reserved beforehand are in its hands by now.
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(large).tokens.size() > 700; }));
  EXPECT_EQ(error_of(make_request(5, 40, 900)).code, ErrorCode::Busy);
  cluster_.cancel(large);
  cluster_.settle();
}

TEST_F(NodeFaults, DrainFinishesWhatIsInWorkAndRefusesTheRest) {
  const GenerateRequest running = make_request(1, 60, 50);
  cluster_.start(running, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.answer(running).tokens.size() > 2; }));
  bool drained = false;
  decode().drain(seconds(60), [&] { drained = true; });
  EXPECT_FALSE(decode().is_ready());
  const GenerateRequest late = make_request(2, 60, 5);
  cluster_.start(late, "p0", "d0");
  EXPECT_EQ(cluster_.finish(late).error->code, ErrorCode::Draining);
  EXPECT_EQ(cluster_.finish(running).output(), scripted_output(model_, running));
  EXPECT_TRUE(cluster_.run_until([&] { return drained; }));
}

TEST_F(NodeFaults, WrongPairIsRefusedAtTheHandshake) {
  struct Case {
    const char* field;
    std::function<void(wire::Hello&)> change;
  };
  const std::vector<Case> cases{
      {"cluster_token", [](wire::Hello& h) { h.set_cluster_token("guess"); }},
      {"role", [](wire::Hello& h) { h.set_role("gateway"); }},
      {"wire_major", [](wire::Hello& h) { h.set_wire_major(99); }},
      {"id", [](wire::Hello& h) { h.mutable_model()->set_id("other"); }},
      {"numerics", [](wire::Hello& h) { h.mutable_model()->set_numerics_hash(1); }},
      {"layout", [](wire::Hello& h) { h.mutable_model()->set_layout_hash(1); }},
      {"ucx", [](wire::Hello& h) { h.set_ucx_version("0.1"); }}};
  intruder_ = cluster_.fabric().network("intruder");
  for (const Case& item : cases) {
    wire::Hello hello = cluster_.hello("p0");
    hello.set_cluster_token("secret");
    item.change(hello);
    std::optional<Error> error;
    auto dial =
        intruder_->dial(decode().control_address(), hello, seconds(1), [&](Result<Dialed> result) {
          ASSERT_FALSE(result) << item.field;
          error = result.error();
        });
    ASSERT_TRUE(cluster_.run_until([&] { return error.has_value(); }));
    EXPECT_NE(error->message.find(item.field), std::string::npos) << error->message;
  }
}

}  // namespace
}  // namespace baton::testing
