// Every order in which the events of one lease can happen, and every short history of a send: what
// must hold in all of them. Brute force, no chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>

#include "transfer/entries.h"

namespace baton::transfer {
namespace {

constexpr LeaseId kLease{5, 6};

TEST(ReceiverSession, EveryTransition) {
  using S = ReceiverState;
  constexpr auto kStay = std::nullopt;
  struct Row {
    S state;
    std::array<std::optional<S>, kReceiverEvents> after;  // Verified, Broken, Revoke
  };
  const std::array<Row, kReceiverStates> table{{
      {S::Open, {S::Complete, S::Failed, S::Revoked}},
      {S::Complete, {kStay, kStay, S::Revoked}},
      {S::Failed, {kStay, kStay, S::Revoked}},
      {S::Revoked, {kStay, kStay, kStay}},
  }};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < kReceiverEvents; ++i) {
      EXPECT_EQ(next_state(row.state, static_cast<ReceiverEvent>(i)), row.after[i])
          << to_string(row.state) << " event " << i;
    }
  }
}

// One block each of one layer, small: the arena holds blocks 0 (message A), 1 (message B), 2.
struct Memory {
  Memory() {
    view.layout.layers = 1;
    view.layout.kv_heads = 1;
    view.layout.head_dim = 16;
    view.layout.block_tokens = 16;
    view.num_blocks = 3;
    bytes.resize(view.bytes());
    view.base = bytes.data();
  }
  std::vector<std::byte> bytes;
  KvArenaView view;
};

enum Step : int {
  kAdmitA,
  kEndA,
  kAdmitB,
  kEndB,
  kAdmitAgain,  // A's header once more
  kAdmitStale,  // of an earlier epoch
  kExpect,
  kExpectAgain,
  kRevoke,
  kRevokeAgain,
  kSteps
};

enum class EndOfB { Landed, Failed, Damaged };

// Plays one order; every step that has no meaning in it (the end of a message that was not
// admitted) is left out, as it cannot happen.
class Play {
 public:
  Play(Memory& memory, EndOfB end_of_b)
      : memory_(memory),
        block_bytes_(memory.view.layout.block_bytes()),
        end_of_b_(end_of_b),
        entry_(kLease, Epoch{7}, memory.view, {{BlockId{0}, 2}}, DigestMode::All) {
    std::ranges::fill(memory.bytes, std::byte{0});
    BlockDigest digest(kLease, DigestMode::All);
    digest.add(0, 0, source(1));
    digest.add(0, 1, source(2));
    sent_ = {2 * block_bytes_, DigestMode::All, digest.value()};
  }

  void step(int step) {
    const bool was_fenced = entry_.session.is_fenced();
    switch (step) {
      case kAdmitA:
        is_a_under_way_ = admit(header(0, Epoch{7}));
        break;
      case kEndA:
        if (std::exchange(is_a_under_way_, false)) {
          land(0, source(1));
        }
        break;
      case kAdmitB:
        is_b_under_way_ = admit(header(1, Epoch{7}));
        break;
      case kEndB:
        if (std::exchange(is_b_under_way_, false)) {
          end_b();
        }
        break;
      case kAdmitAgain:
        is_again_under_way_ = admit(header(0, Epoch{7}));
        if (std::exchange(is_again_under_way_, false)) {
          land(0, source(1));  // at once: it came before the first one
        }
        break;
      case kAdmitStale:
        ASSERT_FALSE(admit(header(0, Epoch{6})));
        break;
      case kExpect:
      case kExpectAgain:
        entry_.expect(
            sent_,
            [this, is_first = !std::exchange(has_expected_, true)](
                Result<LeaseReceiver::Done> done) { on_complete(is_first, std::move(done)); });
        break;
      case kRevoke:
      case kRevokeAgain:
        has_revoked_ = true;
        entry_.revoke([this] {
          ++fenced_;
          EXPECT_EQ(entry_.session.receiving(), 0U) << "fenced with a receive under way";
        });
        ++revokes_;
        break;
      default:
        break;
    }
    if (was_fenced) {
      ASSERT_TRUE(entry_.session.is_fenced()) << "a fence does not open again";
      ASSERT_FALSE(was_admitted_) << "a byte was accepted after the fence";
    }
    was_admitted_ = false;
  }

  void finish() {
    step(kEndA);  // what is under way ends, sooner or later
    step(kEndB);
    ASSERT_EQ(fenced_, revokes_) << "each revoke hears of the fence once";
    ASSERT_EQ(completed_, has_expected_ ? 1 : 0);
    ASSERT_EQ(repeated_, has_expected_ ? 1 : 0);
  }

 private:
  static MessageHeader header(std::uint32_t block, Epoch epoch) {
    MessageHeader out;
    out.lease = kLease;
    out.epoch = epoch;
    out.add_run({BlockId{block}, 1});
    return out;
  }
  std::vector<std::byte> source(int value) const {
    return std::vector<std::byte>(block_bytes_, static_cast<std::byte>(value));
  }
  bool admit(const MessageHeader& header) {
    was_admitted_ = entry_.session.admit(header, block_bytes_) == DropReason::None;
    return was_admitted_;
  }
  void land(std::uint32_t block, const std::vector<std::byte>& bytes) {
    std::memcpy(memory_.view.block(0, BlockId{block}), bytes.data(), bytes.size());
    entry_.session.landed(header(block, Epoch{7}));
    entry_.notify();
  }
  void end_b() {
    if (end_of_b_ == EndOfB::Failed) {
      entry_.session.failed(header(1, Epoch{7}));
      entry_.notify();
      return;
    }
    auto bytes = source(2);
    if (end_of_b_ == EndOfB::Damaged) {
      bytes[3] ^= std::byte{4};
    }
    land(1, bytes);
  }
  void on_complete(bool is_first, Result<LeaseReceiver::Done> done) {
    if (!is_first) {
      ++repeated_;
      EXPECT_FALSE(done);
      return;
    }
    ++completed_;
    const bool is_whole = memory_.view.block(0, BlockId{0})[0] == std::byte{1} &&
                          memory_.view.block(0, BlockId{1})[0] == std::byte{2};
    if (done) {
      EXPECT_TRUE(is_whole) << "complete before all bytes landed";
      EXPECT_FALSE(has_revoked_);
      EXPECT_EQ(end_of_b_, EndOfB::Landed) << "complete with other bytes";
      EXPECT_EQ(entry_.session.receiving(), 0U);
    } else if (done.error().code == ErrorCode::ChecksumMismatch) {
      EXPECT_EQ(end_of_b_, EndOfB::Damaged);
    } else {
      EXPECT_EQ(done.error().code, ErrorCode::GrantRevoked);
      EXPECT_TRUE(has_revoked_);
    }
  }

  Memory& memory_;
  const std::size_t block_bytes_;
  const EndOfB end_of_b_;
  LeaseEntry entry_;
  Sent sent_;
  bool is_a_under_way_ = false, is_b_under_way_ = false, is_again_under_way_ = false;
  bool was_admitted_ = false, has_expected_ = false, has_revoked_ = false;
  int completed_ = 0, repeated_ = 0, fenced_ = 0, revokes_ = 0;
};

TEST(Interleavings, EveryOrderOfALeasesEventsKeepsTheRules) {
  Memory memory;
  for (const EndOfB end : {EndOfB::Landed, EndOfB::Failed, EndOfB::Damaged}) {
    std::array<int, kSteps> order;
    std::ranges::copy(std::array{kAdmitA,
                                 kEndA,
                                 kAdmitB,
                                 kEndB,
                                 kAdmitAgain,
                                 kAdmitStale,
                                 kExpect,
                                 kExpectAgain,
                                 kRevoke,
                                 kRevokeAgain},
                      order.begin());
    std::size_t played = 0;
    do {
      // Twins in one order only, an end only after its beginning.
      const auto at = [&](int step) { return std::ranges::find(order, step); };
      if (at(kAdmitA) > at(kEndA) || at(kAdmitB) > at(kEndB) || at(kExpect) > at(kExpectAgain) ||
          at(kRevoke) > at(kRevokeAgain)) {
        continue;
      }
      Play play(memory, end);
      for (const int step : order) {
        play.step(step);
      }
      play.finish();
      ++played;
      ASSERT_FALSE(::testing::Test::HasFailure())
          << "order " << played << ": " << ::testing::PrintToString(order);
    } while (std::ranges::next_permutation(order).found);
    EXPECT_EQ(played, 226'800U);  // 10! over 2 for each of the four pairs
  }
}

// All histories of a send of two pieces up to a depth, from each state every call that its owner
// may make.
class Histories {
 public:
  std::size_t count() const { return count_; }

  void explore(const SenderSession& session, std::size_t outstanding, bool ended, int depth) {
    check(session, outstanding);
    ++count_;
    if (depth == 0 || ::testing::Test::HasFailure()) {
      return;
    }
    const auto next = [&](auto&& change, std::size_t then, bool then_ended) {
      SenderSession copy = session;
      change(copy);
      explore(copy, then, then_ended, depth - 1);
    };
    const std::array<BlockId, 2> blocks{BlockId{0}, BlockId{2}};
    next([&](SenderSession& s) { s.add_layer(0, 0, blocks); }, outstanding, ended);
    next([](SenderSession& s) { s.finish(); }, outstanding, ended);
    next([](SenderSession& s) { s.abort(); }, outstanding, true);
    const bool fails = next_state(session.state(), SenderEvent::Fail).has_value();
    next([](SenderSession& s) { s.fail({ErrorCode::PeerDead, "x"}); }, outstanding, ended || fails);
    if (session.is_ready()) {
      EXPECT_FALSE(ended) << "a piece goes out after the end";
      next([](SenderSession& s) { s.next(); }, outstanding + 1, ended);
    }
    if (outstanding > 0) {
      next([](SenderSession& s) { s.completed(100); }, outstanding - 1, ended);
    }
    if (session.needs_flush()) {
      next(
          [](SenderSession& s) {
            s.flush_posted();
            s.flush_done();
          },
          outstanding,
          ended);
    }
  }

 private:
  static void check(const SenderSession& session, std::size_t outstanding) {
    EXPECT_EQ(session.outstanding(), outstanding);
    if (session.is_over()) {
      EXPECT_EQ(outstanding, 0U) << "over with an operation outstanding";
      EXPECT_FALSE(session.is_ready());
    }
    if (session.state() == SenderState::Flushed) {
      EXPECT_EQ(session.bytes_sent() % 200, 0U) << "flushed before every piece was sent";
    }
    if (session.needs_flush()) {
      EXPECT_EQ(outstanding, 0U) << "a flush before the last completion";
    }
  }

  std::size_t count_ = 0;
};

TEST(Interleavings, EveryShortHistoryOfASendKeepsTheRules) {
  KvGrant grant;
  grant.lease = kLease;
  grant.runs = {{BlockId{10}, 2}};
  Histories histories;
  histories.explore(SenderSession(grant, 1, {100, 1000, 0, 64}, 150), 0, false, 9);
  EXPECT_GT(histories.count(), 100'000U);
}

}  // namespace
}  // namespace baton::transfer
