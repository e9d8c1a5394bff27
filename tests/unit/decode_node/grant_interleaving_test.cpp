// Every order in which the events of one grant can happen: its blocks go to one place, once, and
// not before the fence.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "common/exec/manual_executor.h"
#include "common/wire/convert.h"
#include "decode_node/grant_table.h"
#include "tests/unit/decode_node/hand_transport.h"

namespace baton::decode_node {
namespace {

const KvLayout kOneLayer{.layers = 1, .kv_heads = 1, .head_dim = 16, .block_tokens = 16};
constexpr std::uint32_t kBlocks = 8;
constexpr std::uint32_t kPrompt = 40;  // 3 blocks, and one for the answer
constexpr node::ClientId kClient{1};
constexpr WriterId kWriter{7};

enum Step : int {
  kCommit,
  kCommitAgain,
  kCommitStale,  // of another epoch
  kLanded,
  kFence,
  // Two of these end the grant early, or come late.
  kCancel,
  kWriterAbort,
  kWriterLost,
  kClientLost,
  kExpire
};
constexpr std::array kEnds{kCancel, kWriterAbort, kWriterLost, kClientLost, kExpire};

class Play {
 public:
  // `kv`: all free, and so again after finish().
  Play(engine::KvMemory& kv, bool is_damaged) : is_damaged_(is_damaged), kv_(kv) {
    GenerateRequest request;
    request.id = RequestId{1};
    request.prompt.assign(kPrompt, 3);
    request.max_tokens = 8;
    request.deadline = std::chrono::minutes(10);
    const auto size = engine::check_size(request, 4096, 100);
    promise_ = *table_.grant(kClient, request, *size, {});
    table_.renew(kWriter, promise_.lease, promise_.epoch);
  }

  void step(int step) {
    HandReceiver::Calls& calls = *transport_.calls[0];
    switch (step) {
      case kCommit:
      case kCommitAgain:
        accepted_ += table_.commit(kWriter, commit(promise_.epoch)) ? 1 : 0;
        break;
      case kCommitStale:
        EXPECT_FALSE(table_.commit(kWriter, commit(Epoch{promise_.epoch.value + 1})));
        break;
      case kLanded:
        if (const auto complete = std::exchange(calls.complete, nullptr)) {
          has_landed_ = true;
          complete(is_damaged_ ? fail(ErrorCode::ChecksumMismatch, "other bytes")
                               : Result<transfer::LeaseReceiver::Done>({.bytes = 1}));
        }
        break;
      case kFence:
        if (const auto fenced = std::exchange(calls.fenced, nullptr)) {
          EXPECT_FALSE(is_fenced_);
          is_fenced_ = true;
          fenced();
        }
        break;
      case kCancel:
        table_.cancel(kClient, RequestId{1}, Attempt{});
        break;
      case kWriterAbort:
        table_.abort(promise_.lease, promise_.epoch, "the writer gives up", false);
        break;
      case kWriterLost:
        table_.writer_lost(kWriter);
        break;
      case kClientLost:
        table_.client_lost(kClient);
        break;
      case kExpire:
        executor_.advance(promise_.ttl);
        break;
      default:
        break;
    }
    executor_.run_until_idle();
    check();
  }

  void finish() {
    step(kExpire);  // if nothing else has ended it
    step(kFence);
    EXPECT_TRUE(is_fenced_);
    verified_.clear();
    EXPECT_EQ(kv_.pool().free(), kBlocks);
    EXPECT_EQ(table_.num_open() + table_.num_quarantined(), 0U);
  }

 private:
  void check() {
    EXPECT_LE(accepted_, 1) << "a repeated commit was accepted";
    EXPECT_LE(verified_.size() + failed_, 1U) << "an end of two kinds, or told twice";
    if (!verified_.empty()) {
      EXPECT_TRUE(accepted_ == 1 && has_landed_ && is_fenced_ && !is_damaged_);
    }
    if (!is_fenced_) {
      EXPECT_LT(kv_.pool().free(), kBlocks) << "blocks came back before the fence";
    }
  }

  wire::Commit commit(Epoch epoch) const {
    wire::Commit commit;
    set_lease(commit, promise_.lease, epoch);
    commit.set_first_token(1);
    commit.set_token_count(kPrompt);
    commit.set_bytes(3 * kOneLayer.block_bytes_all_layers());
    return commit;
  }

  const bool is_damaged_;
  ManualExecutor executor_;
  HandTransport transport_;
  engine::KvMemory& kv_;
  std::vector<std::unique_ptr<Grant>> verified_;
  std::size_t failed_ = 0;
  int accepted_ = 0;
  bool has_landed_ = false;
  bool is_fenced_ = false;
  KvGrant promise_;
  GrantTable table_{executor_,
                    transport_,
                    kv_,
                    seeded_random(1),
                    GrantOptions{.node = "d0", .vocab_size = 100},
                    GrantHandlers{.on_verified =
                                      [this](std::unique_ptr<Grant> grant) {
                                        verified_.push_back(std::move(grant));
                                      },
                                  .on_cancelled = [](GrantState) {},
                                  .on_failed = [this](const Grant&, const Error&) { ++failed_; },
                                  .send_abort = [](WriterId, const wire::Abort&) {},
                                  .on_freed = [] {}}};
};

TEST(GrantInterleavings, EveryOrderOfAGrantsEventsKeepsTheRules) {
  const auto kv = std::move(*engine::KvMemory::create(kOneLayer, {.num_blocks = kBlocks}));
  std::size_t played = 0;
  for (std::size_t i = 0; i < kEnds.size(); ++i) {
    for (std::size_t j = i + 1; j < kEnds.size(); ++j) {
      std::array<int, 7> order{
          kCommit, kCommitAgain, kCommitStale, kLanded, kFence, kEnds[i], kEnds[j]};
      do {
        if (std::ranges::find(order, kCommit) > std::ranges::find(order, kCommitAgain)) {
          continue;  // twins
        }
        for (const bool is_damaged : {false, true}) {
          Play play(*kv, is_damaged);
          for (const int step : order) {
            play.step(step);
          }
          play.finish();
          ++played;
          ASSERT_FALSE(::testing::Test::HasFailure())
              << "order " << played << ": " << ::testing::PrintToString(order);
        }
      } while (std::ranges::next_permutation(order).found);
    }
  }
  EXPECT_EQ(played, 50'400U);  // 10 pairs of ends, 7! / 2 orders, sound and damaged
}

}  // namespace
}  // namespace baton::decode_node
