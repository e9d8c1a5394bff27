// A peer that does not keep the rules: whatever it sends is dropped and counted, and no byte of the
// arena changes.
#include "tests/unit/transfer/rig.h"
#include "transfer/put_message.h"

namespace baton::testing {
namespace {

using transfer::EncodedHeader;
using transfer::MessageHeader;

class Hostile : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint32_t kBlocks = 32;

  Hostile() : rig_(make_rig(GetParam())), arena_(layout_, kBlocks) {
    transport_ = rig_->make("d0", arena_.view());
    lease_ = transport_->open_lease(id_, epoch_, {{BlockId{4}, 4}, {BlockId{20}, 2}});
    hostile_ = rig_->make_hostile(*transport_);
  }

  MessageHeader valid() const {
    MessageHeader header;
    header.lease = id_;
    header.epoch = epoch_;
    header.layer = 1;
    header.lane = transfer::Lane::Shm;
    header.add_run({BlockId{4}, 2});
    return header;
  }
  void send(const MessageHeader& header, std::size_t length) {
    EncodedHeader encoded;
    transfer::encode(header, encoded);
    send(encoded.span(), length);
  }
  void send(std::span<const std::byte> header, std::size_t length) {
    const std::vector<std::byte> bytes(length, std::byte{0xee});
    hostile_->send(header, bytes);
    ++sent_;
  }
  void expect_all_dropped(const std::string& reason) {
    ASSERT_TRUE(eventually([&] { return transport_->stats().messages_dropped >= sent_; }));
    const auto stats = transport_->stats();
    EXPECT_EQ(stats.messages_dropped, sent_);
    if (GetParam() != "fake") {
      EXPECT_EQ(stats.dropped_by_reason.at(reason), sent_);
    }
    EXPECT_EQ(stats.bytes_received, 0U);
    expect_untouched();
  }
  void expect_untouched() {
    EXPECT_TRUE(arena_.canaries_intact());
    for (std::uint32_t layer = 0; layer < layout_.layers; ++layer) {
      for (std::uint32_t i = 0; i < kBlocks; ++i) {
        ASSERT_TRUE(arena_.is_filled_with(layer, BlockId{i}, std::byte{0}));
      }
    }
  }

  const KvLayout layout_ = small_layout(3, 64);
  const LeaseId id_ = random_lease();
  const Epoch epoch_{5};
  std::unique_ptr<Rig> rig_;
  TestArena arena_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<transfer::LeaseReceiver> lease_;
  std::unique_ptr<HostilePeer> hostile_;
  std::uint64_t sent_ = 0;
};

TEST_P(Hostile, ForgedLease) {
  auto header = valid();
  header.lease.low ^= 1;
  send(header, 2 * layout_.block_bytes());
  header = valid();
  header.lease = {};
  send(header, 2 * layout_.block_bytes());
  expect_all_dropped("unknown_lease");
}

TEST_P(Hostile, WrongEpoch) {
  for (const std::uint32_t epoch : {0U, 4U, 6U, 0xffffffffU}) {
    auto header = valid();
    header.epoch = Epoch{epoch};
    send(header, 2 * layout_.block_bytes());
  }
  expect_all_dropped("wrong_epoch");
}

TEST_P(Hostile, WrongLayer) {
  for (const std::uint32_t layer : {3U, 4U, 0x7fffffffU, 0xffffffffU}) {
    auto header = valid();
    header.layer = layer;
    send(header, 2 * layout_.block_bytes());
  }
  expect_all_dropped("bad_layer");
}

TEST_P(Hostile, BlocksThatTheLeaseDoesNotHold) {
  for (const BlockRun run : {BlockRun{BlockId{3}, 1},
                             BlockRun{BlockId{7}, 2},
                             BlockRun{BlockId{8}, 1},
                             BlockRun{BlockId{4}, 5},
                             BlockRun{BlockId{20}, 3},
                             BlockRun{BlockId{31}, 2},
                             BlockRun{BlockId{32}, 1},
                             BlockRun{BlockId{4}, 0},
                             BlockRun{BlockId{4}, 0xffffffff},
                             BlockRun{BlockId{0xffffffff}, 0xffffffff},
                             BlockRun{BlockId{0xffffffff}, 1}}) {
    auto header = valid();
    header.run[0] = run;
    send(header, std::min<std::size_t>(run.count, 4) * layout_.block_bytes());
  }
  // One good run does not excuse a bad one.
  auto header = valid();
  header.add_run({BlockId{9}, 1});
  send(header, 3 * layout_.block_bytes());
  expect_all_dropped("out_of_range");
}

TEST_P(Hostile, LengthThatDoesNotFit) {
  const std::size_t right = 2 * layout_.block_bytes();
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, right - 1, right + 1, right * 8}) {
    send(valid(), length);
  }
  expect_all_dropped("wrong_length");
}

TEST_P(Hostile, OneBlockTwiceInAMessage) {
  auto header = valid();
  header.add_run({BlockId{5}, 1});
  send(header, 3 * layout_.block_bytes());
  expect_all_dropped("duplicate");
}

TEST_P(Hostile, DamagedHeaders) {
  EncodedHeader encoded;
  transfer::encode(valid(), encoded);
  const std::vector<std::byte> good(encoded.span().begin(), encoded.span().end());
  for (std::size_t length = 1; length < good.size(); ++length) {  // cut anywhere
    send(std::span(good).first(length), 2 * layout_.block_bytes());
  }
  for (const std::size_t at : {0U, 1U, 2U, 28U, 29U, 30U, 31U}) {  // magic, version, runs, reserved
    auto bad = good;
    bad[at] ^= std::byte{0x40};
    send(bad, 2 * layout_.block_bytes());
  }
  auto bad_lane = good;
  bad_lane[3] = std::byte{200};
  send(bad_lane, 2 * layout_.block_bytes());
  auto longer = good;
  longer.push_back(std::byte{0});
  send(longer, 2 * layout_.block_bytes());
  expect_all_dropped("malformed");
}

TEST_P(Hostile, AMessageUnderANumberThatNobodyHas) {
  const std::vector<std::byte> bytes(64, std::byte{0xee});
  for (const unsigned number : {0U, 3U, 4U, 9U, 1000U, 65535U}) {
    hostile_->send_as(number, bytes);
  }
  send(valid(), 2 * layout_.block_bytes());
  ASSERT_TRUE(
      eventually([&] { return transport_->stats().bytes_received == 2 * layout_.block_bytes(); }));
}

TEST_P(Hostile, AHonestMessageAfterAllThatStillLands) {
  auto header = valid();
  header.epoch = Epoch{1};
  send(header, 2 * layout_.block_bytes());
  send(valid(), 2 * layout_.block_bytes());
  ASSERT_TRUE(
      eventually([&] { return transport_->stats().bytes_received == 2 * layout_.block_bytes(); }));
  EXPECT_TRUE(arena_.is_filled_with(1, BlockId{4}, std::byte{0xee}));
  EXPECT_TRUE(arena_.is_filled_with(1, BlockId{5}, std::byte{0xee}));
  EXPECT_TRUE(arena_.is_filled_with(1, BlockId{6}, std::byte{0}));
  EXPECT_TRUE(arena_.canaries_intact());
  // Complete or not, what was written once is not written again.
  send(valid(), 2 * layout_.block_bytes());
  ASSERT_TRUE(eventually([&] { return transport_->stats().messages_dropped == 2; }));
}

TEST_P(Hostile, ALeaseThatIsOverTakesNothing) {
  Done fenced;
  lease_->revoke(fenced.setter());
  ASSERT_TRUE(fenced.wait());
  for (int i = 0; i < 20; ++i) {
    send(valid(), 2 * layout_.block_bytes());
  }
  expect_all_dropped("unknown_lease");
}

TEST_P(Hostile, ACompleteLeaseTakesNothingMore) {
  Promised<Result<transfer::LeaseReceiver::Done>> complete;
  lease_->expect({.bytes = 0}, complete.setter());
  ASSERT_TRUE(complete.wait());
  send(valid(), 2 * layout_.block_bytes());
  expect_all_dropped("ended");
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         Hostile,
                         ::testing::ValuesIn(tested_paths({"fake", "tcp", "shm", "shm_put"})),
                         [](const auto& info) { return info.param; });

// The same for what a writer that puts would say.
class HostilePut : public Hostile {
 protected:
  transfer::PutMessage claim() const {
    transfer::PutMessage message;
    message.kind = transfer::PutKind::Claim;
    message.path = transport_of(GetParam()) == "shm" ? transfer::PathKind::ShmPut
                                                     : transfer::PathKind::RdmaPut;
    message.lane = transfer::Lane::Shm;
    message.epoch = epoch_;
    message.lease = id_;
    message.writer = transfer::own_identity();
    return message;
  }
  void say(const transfer::PutMessage& message) { say(transfer::encode(message)); }
  void say(std::span<const std::byte> bytes) {
    hostile_->say(bytes);
    ++sent_;
  }
};

TEST_P(HostilePut, ForgedClaims) {
  auto message = claim();
  message.lease.high ^= 1;
  say(message);
  message.lease = {};
  say(message);
  expect_all_dropped("unknown_lease");
}

TEST_P(HostilePut, AClaimOfAnotherEpoch) {
  auto message = claim();
  message.epoch = Epoch{6};
  say(message);
  expect_all_dropped("wrong_epoch");
}

TEST_P(HostilePut, AClaimWhoseEndNothingCouldProve) {
  auto message = claim();
  message.path = message.path == transfer::PathKind::ShmPut ? transfer::PathKind::RdmaPut
                                                            : transfer::PathKind::ShmPut;
  say(message);  // by a path that was not offered
  if (transport_of(GetParam()) == "shm") {
    message = claim();
    message.writer.host ^= 2;  // another host's process
    say(message);
    message = claim();
    message.writer.start += 1;  // a process that is no more
    say(message);
    message.writer = {};
    say(message);
  }
  expect_all_dropped("unprovable");
}

TEST_P(HostilePut, DamagedNotes) {
  const auto good = transfer::encode(claim());
  for (std::size_t length = 1; length < good.size(); ++length) {
    say(std::span(good).first(length));
  }
  for (const std::size_t at : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 48U, 55U}) {
    auto bad = good;
    bad[at] ^= std::byte{0x40};
    say(bad);
  }
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back(std::byte{0});
  say(longer);
  auto answer = claim();
  answer.kind = transfer::PutKind::Answer;
  answer.writer = {};
  say(answer);
  expect_all_dropped("malformed");
}

TEST_P(HostilePut, WordsAboutAClaimThatIsNotTheirs) {
  // Without a claim they mean nothing.
  auto message = claim();
  message.kind = transfer::PutKind::Done;
  message.bytes = 6 * layout_.block_bytes() * layout_.layers;
  say(message);
  say(claim());
  ASSERT_TRUE(eventually([&] { return transport_->stats().messages_received == 2; }));
  // Nor from another process than the one that claimed, nor for another epoch.
  message.writer.pid ^= 1;
  say(message);
  message = claim();
  message.kind = transfer::PutKind::Released;
  message.epoch = Epoch{1};
  say(message);
  ASSERT_TRUE(eventually([&] { return transport_->stats().messages_received == 4; }));
  Done fenced;
  lease_->revoke(fenced.setter());
  // A message comes after the lease's end in the eyes of the receiver's thread.
  send(valid(), 2 * layout_.block_bytes());
  ASSERT_TRUE(eventually([&] { return transport_->stats().messages_dropped == 1; }));
  EXPECT_FALSE(fenced.is_set());
  EXPECT_EQ(transport_->stats().bytes_received, 0U);
  message.epoch = epoch_;
  say(message);
  EXPECT_TRUE(fenced.wait());
}

TEST_P(HostilePut, NoMessageEntersAClaimedLeaseAndNoClaimOneWithMessages) {
  say(claim());
  ASSERT_TRUE(eventually([&] { return transport_->stats().messages_received == 1; }));
  sent_ = 0;
  send(valid(), 2 * layout_.block_bytes());
  say(claim());  // the second
  expect_all_dropped("claimed");
  const LeaseId other = random_lease();
  auto lease = transport_->open_lease(other, epoch_, {{BlockId{10}, 4}});
  auto header = valid();
  header.lease = other;
  header.run[0] = {BlockId{10}, 1};
  send(header, layout_.block_bytes());
  ASSERT_TRUE(
      eventually([&] { return transport_->stats().bytes_received == layout_.block_bytes(); }));
  auto late = claim();
  late.lease = other;
  say(late);
  ASSERT_TRUE(eventually([&] { return transport_->stats().messages_dropped == 3; }));
  EXPECT_EQ(transport_->stats().dropped_by_reason.at("claimed"), 3U);
}

TEST_P(HostilePut, ADoneOfMoreThanTheLeaseHoldsIsNoCommit) {
  say(claim());
  auto message = claim();
  message.kind = transfer::PutKind::Done;
  message.bytes = ~std::uint64_t{0};
  say(message);
  Promised<Result<transfer::LeaseReceiver::Done>> complete;
  lease_->expect({.bytes = 6 * layout_.block_bytes() * layout_.layers}, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && !done->has_value());
  EXPECT_EQ(done->error().code, ErrorCode::ProtocolError);
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         HostilePut,
                         ::testing::ValuesIn(tested_put_paths()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HostilePut);

}  // namespace
}  // namespace baton::testing
