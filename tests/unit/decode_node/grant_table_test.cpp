// The grant's states with a data plane that answers only when told.
#include "decode_node/grant_table.h"

#include <gtest/gtest.h>

#include <array>

#include "common/exec/manual_executor.h"
#include "common/wire/convert.h"
#include "tests/unit/decode_node/hand_transport.h"

namespace baton::decode_node {
namespace {

using std::chrono::milliseconds;

const KvLayout kLayout{.layers = 2, .kv_heads = 1, .head_dim = 16, .block_tokens = 16};

class GrantTableTest : public ::testing::Test {
 protected:
  static constexpr node::ClientId kClient{1};
  static constexpr WriterId kWriter{7};

  GrantTableTest() {
    kv_ = std::move(*engine::KvMemory::create(kLayout, {.num_blocks = 16}));
    table_ = std::make_unique<GrantTable>(
        executor_,
        transport_,
        *kv_,
        seeded_random(1),
        GrantOptions{.node = "d0", .vocab_size = 100, .digest = transfer::DigestMode::Sample},
        GrantHandlers{
            .on_verified =
                [this](std::unique_ptr<Grant> grant) { verified_.push_back(std::move(grant)); },
            .on_cancelled = [this](GrantState state) { cancelled_.push_back(state); },
            .on_failed = [this](const Grant&, const Error& why) { failed_.push_back(why); },
            .send_abort = [this](WriterId, const wire::Abort&) { ++aborts_; },
            .on_freed = [] {}});
  }

  KvGrant grant(std::size_t prompt, std::uint32_t max_tokens = 8) {
    GenerateRequest request;
    request.id = RequestId{1};
    request.prompt.assign(prompt, 3);
    request.max_tokens = max_tokens;
    request.deadline = deadline_;
    prompt_ = prompt;
    const auto size = engine::check_size(request, 4096, 100);
    auto granted = table_->grant(kClient, request, *size, terms_);
    EXPECT_TRUE(granted) << granted.error().message;
    return *granted;
  }

  wire::Commit commit_of(const KvGrant& grant) {
    wire::Commit commit;
    set_lease(commit, grant.lease, grant.epoch);
    commit.set_first_token(1);
    commit.set_token_count(static_cast<std::uint32_t>(prompt_));
    commit.set_bytes((kLayout.blocks_for(prompt_) - grant.prefix_blocks) *
                     kLayout.block_bytes_all_layers());
    return commit;
  }

  std::uint32_t count(engine::BlockUse use) { return kv_->pool().count(use); }

  ManualExecutor executor_;
  HandTransport transport_;
  std::unique_ptr<engine::KvMemory> kv_;
  std::vector<std::unique_ptr<Grant>> verified_;
  std::vector<Error> failed_;
  std::vector<GrantState> cancelled_;
  GrantTable::Terms terms_;
  milliseconds deadline_{600'000};
  int aborts_ = 0;
  std::size_t prompt_ = 0;
  std::unique_ptr<GrantTable> table_;
};

TEST(GrantStates, EveryTransition) {
  using S = GrantState;
  constexpr auto kStay = std::nullopt;
  struct Row {
    S state;
    std::array<std::optional<S>, kGrantEvents> after;  // Commit, Landed, Revoke, Fenced
  };
  const std::array<Row, kGrantStates> table{{
      {S::Granted, {S::Landing, kStay, S::Quarantined, kStay}},
      {S::Landing, {kStay, S::Fencing, S::Quarantined, kStay}},
      {S::Fencing, {kStay, kStay, S::Quarantined, S::Ended}},
      {S::Quarantined, {kStay, kStay, kStay, S::Ended}},
      {S::Ended, {kStay, kStay, kStay, kStay}},
  }};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < kGrantEvents; ++i) {
      EXPECT_EQ(next_state(row.state, static_cast<GrantEvent>(i)), row.after[i])
          << static_cast<int>(row.state) << " event " << i;
    }
  }
}

TEST_F(GrantTableTest, OnlyThePromptsBlocksMayBeWritten) {
  const KvGrant promise = grant(40, 60);  // 3 blocks of prompt, 7 in all
  EXPECT_EQ(count(engine::BlockUse::Granted), 7U);
  ASSERT_EQ(promise.runs.size(), 1U);
  EXPECT_EQ(promise.runs[0].count, 3U);
  EXPECT_EQ(transport_.last_runs, promise.runs);
  table_->cancel(kClient, RequestId{1}, Attempt{});
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
}

TEST_F(GrantTableTest, EarlyCommitWaitsForBytesAndFence) {
  const KvGrant promise = grant(40);
  ASSERT_TRUE(table_->commit(kWriter, commit_of(promise)));
  EXPECT_EQ(transport_.calls[0]->expected.bytes, 3 * kLayout.block_bytes_all_layers());
  executor_.run_until_idle();
  EXPECT_TRUE(verified_.empty());
  transport_.calls[0]->complete(transfer::LeaseReceiver::Done{.bytes = 5, .transport = "shm"});
  executor_.run_until_idle();
  EXPECT_TRUE(verified_.empty());  // a posted receive could still write
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
  ASSERT_EQ(verified_.size(), 1U);
  EXPECT_EQ(verified_[0]->landed.transport, "shm");
  EXPECT_EQ(verified_[0]->committed.first_token, 1);
  verified_.clear();
  EXPECT_EQ(kv_->pool().free(), 16U);
}

TEST_F(GrantTableTest, TheCommitsDigestReachesTheTransport) {
  const KvGrant promise = grant(40);
  EXPECT_EQ(transport_.last_digest, transfer::DigestMode::Sample);
  wire::Commit commit = commit_of(promise);
  commit.set_digest_mode(2);
  commit.set_digest(99);
  ASSERT_TRUE(table_->commit(kWriter, commit));
  EXPECT_EQ(transport_.calls[0]->expected.digest_mode, transfer::DigestMode::All);
  EXPECT_EQ(transport_.calls[0]->expected.digest, 99U);
  const KvGrant second = grant(40);
  commit = commit_of(second);
  commit.set_digest_mode(3);
  const Status refused = table_->commit(kWriter, commit);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::ProtocolError);
  table_->client_lost(kClient);
  transport_.calls[0]->fenced();
  transport_.calls[1]->fenced();
  executor_.run_until_idle();
}

TEST_F(GrantTableTest, RevokedBlocksAreNotHandedOutBeforeTheFence) {
  grant(200);  // 13 blocks of 16
  table_->cancel(kClient, RequestId{1}, Attempt{});
  executor_.run_until_idle();
  EXPECT_EQ(count(engine::BlockUse::Quarantined), 13U);
  EXPECT_EQ(table_->num_quarantined(), 1U);
  EXPECT_FALSE(kv_->acquire(4));
  executor_.advance(std::chrono::hours(1));  // time alone is no proof
  EXPECT_EQ(count(engine::BlockUse::Quarantined), 13U);
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
  EXPECT_EQ(kv_->pool().free(), 16U);
  EXPECT_TRUE(transport_.calls[0]->is_dropped);
}

TEST_F(GrantTableTest, LateCommitAndCompletionChangeNothing) {
  const KvGrant promise = grant(40);
  ASSERT_TRUE(table_->commit(kWriter, commit_of(promise)));
  table_->client_lost(kClient);
  EXPECT_EQ(aborts_, 1);
  EXPECT_FALSE(table_->commit(kWriter, commit_of(promise)));
  transport_.calls[0]->complete(transfer::LeaseReceiver::Done{});
  executor_.run_until_idle();
  EXPECT_TRUE(verified_.empty());
  transport_.calls[0]->fenced();
  transport_.calls[0]->fenced();  // twice is once
  executor_.run_until_idle();
  EXPECT_EQ(kv_->pool().free(), 16U);
  EXPECT_EQ(table_->stats().refused_commits, 1U);
}

TEST_F(GrantTableTest, FailedTransferIsReported) {
  const KvGrant promise = grant(40);
  ASSERT_TRUE(table_->commit(kWriter, commit_of(promise)));
  transport_.calls[0]->complete(fail(ErrorCode::ChecksumMismatch, "other bytes"));
  executor_.run_until_idle();
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_EQ(failed_[0].code, ErrorCode::ChecksumMismatch);
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
  EXPECT_EQ(kv_->pool().free(), 16U);
}

TEST_F(GrantTableTest, LeaseBelongsToTheFirstWriterThatNamesIt) {
  const KvGrant promise = grant(40);
  EXPECT_TRUE(table_->renew(kWriter, promise.lease, promise.epoch));
  EXPECT_FALSE(table_->renew(WriterId{8}, promise.lease, promise.epoch));
  EXPECT_FALSE(table_->commit(WriterId{8}, commit_of(promise)));
  table_->writer_lost(WriterId{8});
  EXPECT_EQ(table_->num_open(), 1U);
  table_->writer_lost(kWriter);
  EXPECT_EQ(table_->num_open(), 0U);
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_EQ(failed_[0].code, ErrorCode::PeerDead);
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
}

TEST_F(GrantTableTest, CommittedGrantOutlivesItsWriterForAMoment) {
  const KvGrant promise = grant(40);
  ASSERT_TRUE(table_->commit(kWriter, commit_of(promise)));
  table_->writer_lost(kWriter);
  executor_.advance(milliseconds(500));
  EXPECT_TRUE(failed_.empty());
  executor_.advance(milliseconds(600));
  ASSERT_EQ(failed_.size(), 1U);
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
}

TEST_F(GrantTableTest, RenewalKeepsALeaseAlive) {
  const KvGrant promise = grant(40);
  for (int i = 0; i < 10; ++i) {
    executor_.advance(promise.ttl - milliseconds(1));
    ASSERT_TRUE(table_->renew(kWriter, promise.lease, promise.epoch));
  }
  executor_.advance(promise.ttl + milliseconds(1));
  EXPECT_FALSE(table_->renew(kWriter, promise.lease, promise.epoch));
  EXPECT_EQ(table_->stats().expired, 1U);
  EXPECT_EQ(aborts_, 1);
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
}

TEST_F(GrantTableTest, ExpectedOutputReservesLessThanAllOfIt) {
  terms_ = {.output_tokens = 16};
  grant(40, 120);  // 3 blocks of prompt, 10 in all
  EXPECT_EQ(count(engine::BlockUse::Granted), 4U);
  EXPECT_EQ(table_->num_growing(), 1U);
  grant(40, 8);  // its whole answer is shorter
  EXPECT_EQ(count(engine::BlockUse::Granted), 7U);
  EXPECT_EQ(table_->num_growing(), 1U);
  terms_ = {};
  grant(40, 60);
  EXPECT_EQ(count(engine::BlockUse::Granted), 14U);
  EXPECT_EQ(table_->num_growing(), 1U);
  table_->client_lost(kClient);
  EXPECT_EQ(table_->num_growing(), 0U);
  for (const auto& call : transport_.calls) {
    call->fenced();
  }
  executor_.run_until_idle();
  EXPECT_EQ(kv_->pool().free(), 16U);
}

TEST_F(GrantTableTest, HeadroomIsLeftForSequencesThatGrow) {
  terms_ = {.headroom = 3};
  grant(200);  // 13 blocks of 16
  GenerateRequest request;
  request.prompt.assign(3, 3);
  const auto size = *engine::check_size(request, 4096, 100);
  const auto refused = table_->grant(kClient, request, size, terms_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::Busy);
  terms_.headroom = 1;
  EXPECT_TRUE(table_->grant(kClient, request, size, terms_));
  table_->client_lost(kClient);
  for (const auto& call : transport_.calls) {
    call->fenced();
  }
  executor_.run_until_idle();
}

TEST_F(GrantTableTest, DeadlineEndsAGrantBeforeItsLeaseExpires) {
  deadline_ = milliseconds(700);
  const KvGrant promise = grant(40);
  executor_.advance(milliseconds(400));
  EXPECT_TRUE(table_->renew(kWriter, promise.lease, promise.epoch));
  EXPECT_TRUE(failed_.empty());
  executor_.advance(milliseconds(301));
  ASSERT_EQ(failed_.size(), 1U);
  EXPECT_EQ(failed_[0].code, ErrorCode::Timeout);
  EXPECT_NE(failed_[0].message.find("deadline"), std::string::npos);
  EXPECT_EQ(aborts_, 1);
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
  EXPECT_EQ(kv_->pool().free(), 16U);
}

TEST_F(GrantTableTest, CancelSaysWhereItFoundTheGrant) {
  grant(40);
  table_->cancel(kClient, RequestId{1}, Attempt{});
  table_->cancel(kClient, RequestId{1}, Attempt{});  // again: nothing new
  const KvGrant landing = grant(40);
  ASSERT_TRUE(table_->commit(kWriter, commit_of(landing)));
  table_->cancel(kClient, RequestId{1}, Attempt{});
  const KvGrant fencing = grant(40);
  ASSERT_TRUE(table_->commit(kWriter, commit_of(fencing)));
  transport_.calls[2]->complete(transfer::LeaseReceiver::Done{});
  executor_.run_until_idle();
  table_->cancel(kClient, RequestId{1}, Attempt{});
  EXPECT_EQ(cancelled_,
            (std::vector{GrantState::Granted, GrantState::Landing, GrantState::Fencing}));
  for (const auto& call : transport_.calls) {
    call->fenced();
  }
  executor_.run_until_idle();
  EXPECT_TRUE(verified_.empty());
  EXPECT_EQ(kv_->pool().free(), 16U);
}

TEST_F(GrantTableTest, ImpossibleAndBusyAreDifferentErrors) {
  GenerateRequest request;
  request.prompt.assign(300, 3);
  auto size = *engine::check_size(request, 4096, 100);
  auto impossible = table_->grant(kClient, request, size, {});
  ASSERT_FALSE(impossible);
  EXPECT_EQ(impossible.error().code, ErrorCode::InvalidArgument);
  grant(200);
  request.prompt.resize(100);
  size = *engine::check_size(request, 4096, 100);
  auto busy = table_->grant(kClient, request, size, {});
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, ErrorCode::Busy);
  table_->client_lost(kClient);
  transport_.calls[0]->fenced();
  executor_.run_until_idle();
}

}  // namespace
}  // namespace baton::decode_node
