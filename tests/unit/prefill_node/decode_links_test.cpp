// Links and senders of a prefill node against a decode node that the test plays by hand.
#include "prefill_node/decode_links.h"

#include <gtest/gtest.h>

#include <cstring>

#include "common/exec/manual_executor.h"
#include "common/wire/convert.h"
#include "prefill_node/kv_sender.h"
#include "tests/support/fake_transport.h"
#include "tests/support/memory_channel.h"

namespace baton::prefill_node {
namespace {

using std::chrono::milliseconds;

const KvLayout kLayout{.layers = 3, .kv_heads = 1, .head_dim = 16, .block_tokens = 16};
constexpr char kAddress[] = "10.0.0.9:5000";

class DecodeLinksTest : public ::testing::Test {
 protected:
  DecodeLinksTest() {
    for (auto* memory : {&source_memory_, &target_memory_}) {
      memory->resize(kLayout.block_bytes_all_layers() * 8);
    }
    identity_.name = "p0";
    identity_.role = "prefill";
    engine::ModelInfo info;
    info.context_length = 512;
    info.vocab_size = 100;
    info.layout = kLayout;
    identity_.model = node::make_model_identity("scripted", info, 1, 1);
    links_ = std::make_unique<DecodeLinks>(
        executor_,
        *network_,
        *source_,
        identity_,
        HeartbeatLimits{.period = milliseconds(100), .suspect_after = 3, .dead_after = 6},
        log_);
  }

  KvArenaView arena(std::vector<std::byte>& memory) {
    memory.resize(kLayout.block_bytes_all_layers() * 8);
    return {.base = memory.data(), .layout = kLayout, .num_blocks = 8};
  }

  // The decode node starts to listen.
  void open_decode(std::uint64_t incarnation = 5) {
    decode_network_ = fabric_.network("d0");
    auto listener = decode_network_->listen(
        kAddress,
        [this, incarnation](const wire::Hello&) -> HelloAnswer {
          wire::Welcome welcome;
          welcome.set_node("d0");
          welcome.set_incarnation(incarnation);
          *welcome.mutable_model() = identity_.model;
          inlet_ = std::move(target_->open_inlet()).value();
          const auto& address = inlet_->address();
          welcome.set_worker_address(address.data(), address.size());
          return welcome;
        },
        [this](std::unique_ptr<Channel> channel, const wire::Hello&) {
          channel_ = std::move(channel);
          channel_->set_handlers([this](const wire::Frame& frame) { on_frame(frame); },
                                 [this](const Error&) { channel_.reset(); });
        });
    ASSERT_TRUE(listener);
    listener_ = std::move(*listener);
  }

  void on_frame(const wire::Frame& frame) {
    if (frame.has_heartbeat()) {
      leases_ = frame.heartbeat().leases_size();
      if (answers_heartbeats_) {
        wire::Frame answer;
        answer.mutable_heartbeat();
        channel_->send(answer);
      }
    }
    if (frame.has_abort()) {
      ++aborts_;
      wire::Frame quiet;
      set_lease(*quiet.mutable_quiesced(), lease_of(frame.abort()), Epoch{frame.abort().epoch()});
      channel_->send(quiet);
    }
    if (frame.has_quiesced()) {
      ++quiesced_;
    }
    if (frame.has_commit()) {
      commits_.push_back(frame.commit());
      wire::Frame accepted;
      accepted.mutable_accepted();
      channel_->answer(frame, accepted);
    }
  }

  KvGrant grant(std::uint32_t blocks, std::uint64_t incarnation = 5) {
    KvGrant grant;
    grant.node = "d0";
    grant.incarnation = Incarnation{incarnation};
    grant.lease = {next_lease_++, 1};
    grant.epoch = Epoch{1};
    grant.layout_hash = kLayout.hash();
    grant.control_address = kAddress;
    grant.runs = {{BlockId{2}, blocks}};
    return grant;
  }

  std::unique_ptr<KvSender> sender(const KvGrant& grant, std::uint32_t blocks) {
    return std::make_unique<KvSender>(
        executor_,
        *source_,
        *links_,
        kLayout,
        grant,
        blocks * kLayout.block_tokens,
        transfer::DigestMode::All,
        KvSender::Handlers{
            .on_committed = [this](std::uint64_t bytes) { committed_.push_back(bytes); },
            .on_failed = [this](const Error& why) { failed_.push_back(why); }});
  }

  ManualExecutor executor_;
  testing::MemoryFabric fabric_{executor_};
  testing::FakeNetwork data_{
      [this](std::function<void()> task) { executor_.post(std::move(task)); }};
  std::vector<std::byte> source_memory_;
  std::vector<std::byte> target_memory_;
  std::unique_ptr<transfer::Transport> source_ = data_.make_transport("p0", arena(source_memory_));
  std::unique_ptr<transfer::Transport> target_ = data_.make_transport("d0", arena(target_memory_));
  Logger log_ = Logger::silent();
  node::NodeIdentity identity_;
  std::unique_ptr<Network> network_ = fabric_.network("p0");
  std::unique_ptr<Network> decode_network_;
  std::unique_ptr<transfer::Inlet> inlet_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<DecodeLinks> links_;
  std::vector<std::uint64_t> committed_;
  std::vector<Error> failed_;
  std::vector<wire::Commit> commits_;
  int leases_ = -1;
  int aborts_ = 0;
  int quiesced_ = 0;
  bool answers_heartbeats_ = true;
  std::uint64_t next_lease_ = 1;
};

TEST_F(DecodeLinksTest, BlocksComputedBeforeTheLinkIsUpFollow) {
  open_decode();
  const KvGrant promise = grant(2);
  auto receiver = target_->open_lease(promise.lease, promise.epoch, promise.runs);
  auto kv = sender(promise, 2);
  kv->start();
  const std::vector<BlockId> table{BlockId{0}, BlockId{5}};
  EXPECT_FALSE(kv->plan_step(table, 2 * kLayout.block_tokens));  // no link yet
  for (std::size_t i = 0; i < source_memory_.size(); ++i) {
    source_memory_[i] = static_cast<std::byte>(i * 31 + i / 251);
  }
  kv->computed(table, 2 * kLayout.block_tokens);
  kv->commit({.first_token = 9, .token_count = 20});
  executor_.run_until_idle();
  ASSERT_EQ(committed_.size(), 1U);
  EXPECT_EQ(committed_[0], 2 * kLayout.block_bytes_all_layers());
  ASSERT_EQ(commits_.size(), 1U);
  EXPECT_EQ(commits_[0].bytes(), committed_[0]);
  const KvArenaView from = arena(source_memory_);
  const KvArenaView to = arena(target_memory_);
  for (std::uint32_t layer = 0; layer < kLayout.layers; ++layer) {
    EXPECT_EQ(std::memcmp(
                  from.block(layer, table[0]), to.block(layer, BlockId{2}), kLayout.block_bytes()),
              0);
    EXPECT_EQ(std::memcmp(
                  from.block(layer, table[1]), to.block(layer, BlockId{3}), kLayout.block_bytes()),
              0);
  }
}

TEST_F(DecodeLinksTest, EachBlockIsSentOnceLayerByLayer) {
  open_decode();
  const KvGrant promise = grant(3);
  auto receiver = target_->open_lease(promise.lease, promise.epoch, promise.runs);
  auto kv = sender(promise, 3);
  kv->start();
  executor_.run_until_idle();
  const std::vector<BlockId> table{BlockId{0}, BlockId{1}, BlockId{4}};
  auto first = kv->plan_step(table, 2 * kLayout.block_tokens);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->blocks.size(), 2U);
  for (std::uint32_t layer = 0; layer < kLayout.layers; ++layer) {
    first->post(layer);
  }
  kv->computed(table, 2 * kLayout.block_tokens);
  auto second = kv->plan_step(table, 3 * kLayout.block_tokens);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->first, 2U);
  EXPECT_EQ(second->blocks, std::vector<BlockId>{BlockId{4}});
  for (std::uint32_t layer = 0; layer < kLayout.layers; ++layer) {
    second->post(layer);
  }
  kv->computed(table, 3 * kLayout.block_tokens);
  kv->commit({.token_count = 40});
  executor_.run_until_idle();
  EXPECT_EQ(committed_, std::vector<std::uint64_t>{3 * kLayout.block_bytes_all_layers()});
}

TEST_F(DecodeLinksTest, NobodyThereFailsTheSender) {
  auto kv = sender(grant(1), 1);
  kv->start();
  executor_.run_until_idle();
  executor_.advance(std::chrono::seconds(10));
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_NE(failed_[0].message.find(kAddress), std::string::npos);
  bool done = false;
  kv->abort("given up", [&] { done = true; });
  executor_.run_until_idle();
  EXPECT_TRUE(done);
}

TEST_F(DecodeLinksTest, GrantOfAnEarlierLifeIsRefused) {
  open_decode(6);
  auto kv = sender(grant(1, 5), 1);
  kv->start();
  executor_.run_until_idle();
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_EQ(failed_[0].code, ErrorCode::StaleIncarnation);
}

TEST_F(DecodeLinksTest, HeartbeatsNameTheLeasesInWork) {
  open_decode();
  auto a = sender(grant(1), 1);
  auto b = sender(grant(1), 1);
  a->start();
  b->start();
  executor_.run_until_idle();
  executor_.advance(milliseconds(101));
  EXPECT_EQ(leases_, 2);
  bool done = false;
  b->abort("cancelled", [&] { done = true; });
  executor_.run_until_idle();
  EXPECT_TRUE(done);
  EXPECT_EQ(aborts_, 1);
  EXPECT_EQ(quiesced_, 1);
  b.reset();
  executor_.advance(milliseconds(101));
  EXPECT_EQ(leases_, 1);
}

// A lease of the own arena, under which the decode node writes.
TEST_F(DecodeLinksTest, OwnLeasesAreNotRenewedAndHearThatTheirWriterIsQuiet) {
  open_decode();
  int ups = 0;
  int quiet = 0;
  const UserId user = links_->join(grant(1),
                                   LinkUser{.on_up = [&] { ++ups; },
                                            .on_lost = [](const Error&) { FAIL(); },
                                            .on_abort = [](const Error&) { FAIL(); },
                                            .on_quiesced = [&] { ++quiet; }},
                                   LeaseOwner::ThisNode);
  executor_.run_until_idle();
  executor_.advance(milliseconds(101));
  EXPECT_EQ(ups, 1);
  EXPECT_EQ(leases_, 0);
  EXPECT_TRUE(links_->abort(user, "no longer wanted"));
  executor_.run_until_idle();
  EXPECT_EQ(aborts_, 1);
  EXPECT_EQ(quiet, 1);
  links_->leave(user);
}

TEST_F(DecodeLinksTest, AbortBeforeTheLinkIsUpReachesDecodeLater) {
  open_decode();
  auto kv = sender(grant(1), 1);
  kv->start();
  bool done = false;
  kv->abort("cancelled at once", [&] { done = true; });
  executor_.run_one();
  kv.reset();
  executor_.run_until_idle();
  EXPECT_EQ(aborts_, 1);
  EXPECT_EQ(links_->num_up(), 1U);
}

TEST_F(DecodeLinksTest, SilentDecodeNodeIsLost) {
  open_decode();
  auto kv = sender(grant(1), 1);
  kv->start();
  executor_.run_until_idle();
  executor_.advance(milliseconds(2'000));
  EXPECT_TRUE(failed_.empty());
  answers_heartbeats_ = false;
  executor_.advance(milliseconds(2'000));
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_EQ(failed_[0].code, ErrorCode::PeerStalled);
  EXPECT_EQ(links_->num_up(), 0U);
}

TEST_F(DecodeLinksTest, ASilentDecodeNodeKeepsNoBlocks) {
  open_decode();
  auto kv = sender(grant(1), 1);
  kv->start();
  executor_.run_until_idle();
  data_.set_hook([](const testing::FakeMessage&) { return testing::FakeFate::Stall; });
  kv->computed(std::vector<BlockId>{BlockId{0}}, 1 * kLayout.block_tokens);
  kv->commit({});
  executor_.run_until_idle();
  answers_heartbeats_ = false;
  executor_.advance(milliseconds(2'000));
  ASSERT_EQ(failed_.size(), 1U);
  bool done = false;
  kv->abort("lost", [&] { done = true; });
  executor_.run_until_idle();
  EXPECT_TRUE(done);
}

TEST_F(DecodeLinksTest, DecodesAbortFailsTheSender) {
  open_decode();
  const KvGrant promise = grant(1);
  auto kv = sender(promise, 1);
  kv->start();
  executor_.run_until_idle();
  wire::Frame frame;
  set_lease(*frame.mutable_abort(), promise.lease, promise.epoch);
  frame.mutable_abort()->set_reason("cancelled");
  channel_->send(frame);
  executor_.run_until_idle();
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_EQ(failed_[0].code, ErrorCode::GrantRevoked);
}

}  // namespace
}  // namespace baton::prefill_node
