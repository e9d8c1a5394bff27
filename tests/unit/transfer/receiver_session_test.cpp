#include "transfer/receiver_session.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::transfer {
namespace {

constexpr LeaseId kSessionLease{5, 6};

// 2 layers, 50 blocks of 4096 bytes.
KvArenaView arena() {
  KvArenaView view;
  view.layout.layers = 2;
  view.layout.kv_heads = 1;
  view.layout.head_dim = 32;
  view.layout.block_tokens = 32;
  view.num_blocks = 50;
  return view;
}
const std::uint64_t kBlock = arena().layout.block_bytes();

MessageHeader header(std::uint32_t layer, std::initializer_list<BlockRun> runs) {
  MessageHeader out;
  out.lease = kSessionLease;
  out.epoch = Epoch{1};
  out.layer = layer;
  for (const BlockRun& run : runs) {
    out.add_run(run);
  }
  return out;
}

ReceiverSession session() {
  // Given out of order; 10..14 and 15..16 are neighbours.
  return {kSessionLease, Epoch{1}, arena(), {{BlockId{40}, 2}, {BlockId{15}, 2}, {BlockId{10}, 5}}};
}

TEST(ReceiverSession, CompleteOnceAllHasLanded) {
  auto s = session();
  const auto first = header(0, {{BlockId{10}, 7}, {BlockId{40}, 2}});
  ASSERT_EQ(s.admit(first, 9 * kBlock), DropReason::None);
  s.expect({.bytes = 18 * kBlock});
  s.landed(first);
  EXPECT_EQ(s.state(), ReceiverState::Open);
  const auto second = header(1, {{BlockId{40}, 2}, {BlockId{10}, 7}});
  ASSERT_EQ(s.admit(second, 9 * kBlock), DropReason::None);
  EXPECT_FALSE(s.is_fenced());
  s.landed(second);
  EXPECT_EQ(s.state(), ReceiverState::Complete);
  EXPECT_TRUE(s.is_fenced());
  EXPECT_EQ(s.admit(second, 9 * kBlock), DropReason::Ended);
}

TEST(ReceiverSession, EachReasonToDrop) {
  auto s = session();
  auto old = header(0, {{BlockId{10}, 1}});
  old.epoch = Epoch{0};
  EXPECT_EQ(s.admit(old, kBlock), DropReason::WrongEpoch);
  EXPECT_EQ(s.admit(header(2, {{BlockId{10}, 1}}), kBlock), DropReason::BadLayer);
  EXPECT_EQ(s.admit(header(0, {{BlockId{9}, 1}}), kBlock), DropReason::OutOfRange);
  EXPECT_EQ(s.admit(header(0, {{BlockId{16}, 2}}), 2 * kBlock), DropReason::OutOfRange);
  EXPECT_EQ(s.admit(header(0, {{BlockId{10}, 0}}), 0), DropReason::OutOfRange);
  EXPECT_EQ(s.admit(header(0, {{BlockId{10}, 1}}), kBlock - 1), DropReason::WrongLength);
  EXPECT_EQ(s.admit(header(0, {{BlockId{10}, 2}, {BlockId{11}, 1}}), 3 * kBlock),
            DropReason::Duplicate);
  // None of these left a mark.
  const auto good = header(0, {{BlockId{10}, 2}});
  EXPECT_EQ(s.admit(good, 2 * kBlock), DropReason::None);
  EXPECT_EQ(s.admit(header(0, {{BlockId{11}, 1}}), kBlock), DropReason::Duplicate);
  s.landed(good);
  EXPECT_EQ(s.admit(header(0, {{BlockId{11}, 1}}), kBlock), DropReason::Duplicate);
  EXPECT_EQ(s.admit(header(1, {{BlockId{11}, 1}}), kBlock), DropReason::None);
}

TEST(ReceiverSession, AFailedReceiveMayComeAgain) {
  auto s = session();
  const auto h = header(0, {{BlockId{10}, 2}});
  ASSERT_EQ(s.admit(h, 2 * kBlock), DropReason::None);
  s.failed(h);
  EXPECT_EQ(s.bytes_landed(), 0U);
  ASSERT_EQ(s.admit(h, 2 * kBlock), DropReason::None);
  s.landed(h);
  EXPECT_EQ(s.bytes_landed(), 2 * kBlock);
}

TEST(ReceiverSession, RevokedIsFencedOnlyAfterTheLastReceive) {
  auto s = session();
  const auto h = header(0, {{BlockId{10}, 2}});
  const auto other = header(1, {{BlockId{10}, 2}});
  ASSERT_EQ(s.admit(h, 2 * kBlock), DropReason::None);
  ASSERT_EQ(s.admit(other, 2 * kBlock), DropReason::None);
  s.revoke();
  EXPECT_FALSE(s.is_fenced());
  s.landed(h);
  EXPECT_FALSE(s.is_fenced());
  s.failed(other);
  EXPECT_TRUE(s.is_fenced());
  EXPECT_EQ(s.state(), ReceiverState::Revoked);
}

TEST(ReceiverSession, ACommitOfTooMuchOrTooLittleFails) {
  auto too_much = session();
  too_much.expect({.bytes = 18 * kBlock + 1});
  EXPECT_EQ(too_much.state(), ReceiverState::Failed);
  auto too_little = session();
  const auto h = header(0, {{BlockId{10}, 2}});
  ASSERT_EQ(too_little.admit(h, 2 * kBlock), DropReason::None);
  too_little.landed(h);
  too_little.expect({.bytes = kBlock});
  EXPECT_EQ(too_little.state(), ReceiverState::Failed);
  EXPECT_EQ(too_little.error()->code, ErrorCode::ProtocolError);
}

TEST(ReceiverSession, MoreUnderWayThanCommittedFailsWhenItLands) {
  auto s = session();
  const auto h = header(0, {{BlockId{10}, 1}});
  const auto extra = header(0, {{BlockId{11}, 1}});
  ASSERT_EQ(s.admit(h, kBlock), DropReason::None);
  ASSERT_EQ(s.admit(extra, kBlock), DropReason::None);
  s.landed(h);
  s.expect({.bytes = kBlock});
  EXPECT_EQ(s.state(), ReceiverState::Open);
  s.landed(extra);
  EXPECT_EQ(s.state(), ReceiverState::Failed);
}

TEST(ReceiverSession, AnEmptyLeaseCompletesWithNothing) {
  ReceiverSession s(kSessionLease, Epoch{1}, arena(), {});
  EXPECT_EQ(s.admit(header(0, {{BlockId{0}, 1}}), kBlock), DropReason::OutOfRange);
  s.expect({.bytes = 0});
  EXPECT_EQ(s.state(), ReceiverState::Complete);
}

// Random messages, honest and not, against a byte-count oracle kept as a plain map of blocks.
TEST(ReceiverSession, RandomMessagesAgainstAnOracle) {
  std::mt19937 rng(23);
  for (int round = 0; round < 1000; ++round) {
    auto s = session();
    std::vector<std::vector<int>> oracle(2, std::vector<int>(50, -1));  // -1: not held, 0: empty
    for (const std::uint32_t block : {10, 11, 12, 13, 14, 15, 16, 40, 41}) {
      oracle[0][block] = oracle[1][block] = 0;
    }
    std::vector<MessageHeader> landing;
    std::uint64_t landed = 0;
    for (int step = 0; step < 40; ++step) {
      if (!landing.empty() && rng() % 3 == 0) {
        const auto h = landing.back();
        landing.pop_back();
        const bool ok = rng() % 4 != 0;
        for (const BlockRun& run : h.runs()) {
          for (std::uint32_t i = 0; i < run.count; ++i) {
            oracle[h.layer][run.first.value + i] = ok ? 2 : 0;
            landed += ok ? kBlock : 0;
          }
        }
        ok ? s.landed(h) : s.failed(h);
        ASSERT_EQ(s.bytes_landed(), landed);
        continue;
      }
      MessageHeader h = header(rng() % 2, {});
      bool is_free = true;
      std::vector<std::vector<int>> seen = oracle;
      for (std::size_t runs = 1 + rng() % 3; runs > 0; --runs) {
        const BlockRun run{BlockId{static_cast<std::uint32_t>(rng() % 49)},
                           1 + static_cast<std::uint32_t>(rng() % 4)};
        h.add_run(run);
        for (std::uint32_t i = 0; i < run.count; ++i) {
          const std::uint32_t block = run.first.value + i;
          is_free &= block < 50 && seen[h.layer][block] == 0;
          if (block < 50) {
            seen[h.layer][block] = 1;
          }
        }
      }
      const auto verdict = s.admit(h, h.num_blocks() * kBlock);
      ASSERT_EQ(verdict == DropReason::None, is_free);
      if (is_free) {
        oracle = seen;
        landing.push_back(h);
      }
      ASSERT_EQ(s.receiving(), landing.size());
    }
  }
}

}  // namespace
}  // namespace baton::transfer
