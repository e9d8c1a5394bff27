#include "transfer/sender_session.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace baton::transfer {
namespace {

using S = SenderState;
using E = SenderEvent;
constexpr auto kStay = std::nullopt;

TEST(SenderSession, EveryTransition) {
  struct Row {
    S state;
    std::array<std::optional<S>, kSenderEvents> after;  // Finish, Drained, FlushDone, Abort, Fail
  };
  const std::array<Row, kSenderStates> table{{
      {S::Open, {S::Finishing, kStay, kStay, S::Aborting, S::Failing}},
      {S::Finishing, {kStay, S::Flushing, kStay, S::Aborting, S::Failing}},
      {S::Flushing, {kStay, kStay, S::Flushed, S::Aborting, S::Failing}},
      {S::Flushed, {kStay, kStay, kStay, S::Quiesced, kStay}},
      {S::Aborting, {kStay, S::Quiesced, kStay, kStay, kStay}},
      {S::Quiesced, {kStay, kStay, kStay, kStay, kStay}},
      {S::Failing, {kStay, S::Failed, kStay, S::Aborting, kStay}},
      {S::Failed, {kStay, kStay, kStay, S::Quiesced, kStay}},
  }};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < kSenderEvents; ++i) {
      EXPECT_EQ(next_state(row.state, static_cast<E>(i)), row.after[i])
          << to_string(row.state) << " event " << i;
    }
  }
}

KvGrant grant_of(std::uint32_t blocks) {
  KvGrant grant;
  grant.lease = {1, 2};
  grant.epoch = Epoch{1};
  grant.runs = {{BlockId{100}, blocks}};
  return grant;
}

std::vector<BlockId> blocks_of(std::uint32_t count, std::uint32_t step = 2) {
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks.emplace_back(i * step);  // no neighbours with step 2: a piece each
  }
  return blocks;
}

TEST(SenderSession, TheWindowLimitsWhatIsOutstanding) {
  SenderSession session(grant_of(10), 2, {100, 1000, 0, 64}, 250);
  session.add_layer(0, 0, blocks_of(10));
  EXPECT_TRUE(session.next());
  EXPECT_TRUE(session.next());
  EXPECT_FALSE(session.next());
  EXPECT_EQ(session.outstanding_bytes(), 200U);
  session.completed(100);
  EXPECT_TRUE(session.next());
  EXPECT_FALSE(session.next());
}

TEST(SenderSession, APieceLargerThanTheWindowGoesAlone) {
  SenderSession session(grant_of(4), 1, {100, 1000, 0, 64}, 50);
  session.add_layer(0, 0, blocks_of(4));
  EXPECT_TRUE(session.next());
  EXPECT_FALSE(session.next());
  session.completed(100);
  EXPECT_TRUE(session.next());
}

TEST(SenderSession, FlushFollowsTheLastCompletion) {
  SenderSession session(grant_of(2), 1, {100, 1000, 0, 64}, 1000);
  session.add_layer(0, 0, blocks_of(2));
  session.finish();
  EXPECT_FALSE(session.needs_flush());
  session.next();
  session.next();
  session.completed(100);
  EXPECT_FALSE(session.needs_flush());
  session.completed(100);
  ASSERT_TRUE(session.needs_flush());
  session.flush_posted();
  EXPECT_FALSE(session.needs_flush());
  EXPECT_FALSE(session.is_over());
  session.flush_done();
  EXPECT_EQ(session.state(), S::Flushed);
  EXPECT_EQ(session.bytes_sent(), 200U);
}

TEST(SenderSession, OutsideTheGrantFails) {
  struct Case {
    std::uint32_t layer, first, count;
  };
  for (const Case& c : {Case{2, 0, 1},
                        Case{0, 5, 0},
                        Case{0, 0, 5},
                        Case{0, 4, 1},
                        Case{0, 0xffffffff, 1},
                        Case{0xffffffff, 0, 1}}) {
    SenderSession session(grant_of(4), 2, {100, 1000, 0, 64}, 1000);
    session.add_layer(c.layer, c.first, blocks_of(c.count));
    EXPECT_EQ(session.state(), S::Failed);
    EXPECT_EQ(session.error()->code, ErrorCode::InvalidArgument);
  }
  SenderSession session(grant_of(4), 2, {100, 1000, 0, 64}, 1000);
  session.add_layer(1, 4, {});
  EXPECT_EQ(session.state(), S::Open);
}

TEST(SenderSession, FailureWaitsForWhatIsOutstandingAndKeepsTheFirstCause) {
  SenderSession session(grant_of(4), 1, {100, 1000, 0, 64}, 1000);
  session.add_layer(0, 0, blocks_of(4));
  session.next();
  session.fail({ErrorCode::PeerDead, "first"});
  session.fail({ErrorCode::Internal, "second"});
  EXPECT_EQ(session.state(), S::Failing);
  EXPECT_FALSE(session.next());
  session.completed(100);
  EXPECT_EQ(session.state(), S::Failed);
  EXPECT_EQ(session.error()->message, "first");
}

// Any order of calls: the window holds, a session that was told to end ends once nothing is
// outstanding and not before, and no piece goes out after that.
TEST(SenderSession, RandomOrdersKeepTheRules) {
  std::mt19937 rng(17);
  for (int round = 0; round < 5000; ++round) {
    const std::size_t window = 100 + rng() % 1000;
    SenderSession session(grant_of(8), 4, {100, 300, rng() % 2 == 0 ? 0U : 250U, 4}, window);
    std::vector<std::size_t> posted;
    std::uint64_t planned = 0;
    bool flush_outstanding = false;
    bool ended = false;  // abort or fail was called
    for (int step = 0; step < 60; ++step) {
      switch (rng() % 7) {
        case 0:
          if (session.state() == S::Open) {
            planned += 800;
          }
          session.add_layer(static_cast<std::uint32_t>(rng() % 4), 0, blocks_of(8, 1 + rng() % 2));
          break;
        case 1:
        case 2:
          if (auto piece = session.next()) {
            ASSERT_FALSE(ended);
            posted.push_back(piece->bytes);
          }
          break;
        case 3:
          if (!posted.empty()) {
            const std::size_t at = rng() % posted.size();
            session.completed(posted[at]);
            posted.erase(posted.begin() + static_cast<std::ptrdiff_t>(at));
          }
          break;
        case 4:
          if (session.needs_flush()) {
            ASSERT_TRUE(posted.empty());
            session.flush_posted();
            flush_outstanding = true;
          } else if (flush_outstanding) {
            session.flush_done();
            flush_outstanding = false;
          }
          break;
        case 5:
          if (rng() % 4 == 0) {
            session.finish();
          }
          break;
        default:
          if (rng() % 20 == 0) {
            session.abort();
            ended = true;
          } else if (rng() % 20 == 0) {
            session.fail({ErrorCode::PeerDead, "x"});
            ended |= session.error().has_value();
          }
      }
      ASSERT_TRUE(session.outstanding_bytes() <= window || posted.size() == 1);
      if (session.is_over()) {
        ASSERT_TRUE(posted.empty() && !flush_outstanding);
      }
    }
    session.finish();
    while (!session.is_over()) {
      if (auto piece = session.next()) {
        session.completed(piece->bytes);
      } else if (!posted.empty()) {
        session.completed(posted.back());
        posted.pop_back();
      } else if (session.needs_flush()) {
        session.flush_posted();
        session.flush_done();
      } else {
        ASSERT_TRUE(flush_outstanding);
        session.flush_done();
        flush_outstanding = false;
      }
    }
    if (session.state() == S::Flushed) {
      ASSERT_EQ(session.bytes_sent(), planned);
    }
    session.abort();
    ASSERT_EQ(session.state(), S::Quiesced);
  }
}

}  // namespace
}  // namespace baton::transfer
