// What every data path promises, checked on each of them.
#include <algorithm>

#include "tests/unit/transfer/rig.h"

namespace baton::testing {
namespace {

using transfer::DigestMode;
using transfer::LeaseReceiver;

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  // Large enough blocks that UCX takes the path of large messages when several are merged.
  static constexpr std::uint32_t kBlocks = 64;

  void start(const KvLayout& layout = small_layout(),
             std::uint32_t blocks = kBlocks,
             std::size_t window = std::size_t{8} << 20) {
    rig_ = make_rig(GetParam());
    source_ = std::make_unique<TestArena>(layout, blocks);
    target_ = std::make_unique<TestArena>(layout, blocks);
    source_->fill(7);
    sender_ = rig_->make("p0", source_->view(), window);
    receiver_ = rig_->make("d0", target_->view(), window);
    inlet_ = std::move(receiver_->open_inlet()).value();
    peer_ = sender_->connect(inlet_->address(), lost_.setter()).value();
  }

  std::uint32_t layers() const { return source_->view().layout.layers; }
  std::uint64_t bytes_of(std::size_t blocks) const {
    return source_->view().layout.block_bytes_all_layers() * blocks;
  }

  // Every block of the target that is not in `written` is untouched, and so are the canaries.
  void expect_untouched_but(const std::vector<BlockId>& written) const {
    EXPECT_TRUE(target_->canaries_intact());
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      for (std::uint32_t i = 0; i < target_->view().num_blocks; ++i) {
        if (std::find(written.begin(), written.end(), BlockId{i}) == written.end()) {
          EXPECT_TRUE(target_->is_filled_with(layer, BlockId{i}, std::byte{0}))
              << "layer " << layer << " block " << i;
        }
      }
    }
  }

  std::unique_ptr<Rig> rig_;
  std::unique_ptr<TestArena> source_;
  std::unique_ptr<TestArena> target_;
  // In the order of ends: the sending side goes first.
  std::unique_ptr<transfer::Transport> receiver_;
  std::unique_ptr<transfer::Inlet> inlet_;
  std::unique_ptr<transfer::Transport> sender_;
  std::shared_ptr<transfer::Peer> peer_;
  Promised<Error> lost_;
};

std::vector<BlockId> ids(std::initializer_list<std::uint32_t> values) {
  std::vector<BlockId> out;
  for (const std::uint32_t value : values) {
    out.emplace_back(value);
  }
  return out;
}

TEST_P(Conformance, BytesLandWhereGrantedAndNowhereElse) {
  start();
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{10}, 3}, {BlockId{40}, 2}};
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs, DigestMode::All);
  auto sending =
      sender_
          ->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs), DigestMode::All)
          .value();
  const auto blocks = ids({5, 6, 20, 21, 63});
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    sending->send_layer(layer, 0, blocks);
  }
  Promised<Result<transfer::Sent>> flushed;
  sending->finish(flushed.setter());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent && sent->has_value());
  EXPECT_EQ((*sent)->bytes, bytes_of(5));
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect(**sent, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && done->has_value());
  EXPECT_EQ((*done)->bytes, bytes_of(5));
  EXPECT_EQ((*done)->transport, rig_->lane());
  EXPECT_EQ(peer_->transport_name(), rig_->lane());
  const auto written = ids({10, 11, 12, 40, 41});
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      EXPECT_TRUE(target_->holds(layer, written[i], 7, blocks[i]));
    }
  }
  expect_untouched_but(written);
  EXPECT_EQ(receiver_->stats().bytes_received, bytes_of(5));
  EXPECT_EQ(sender_->stats().bytes_sent, bytes_of(5));
  EXPECT_EQ(receiver_->stats().messages_dropped, 0U);
}

TEST_P(Conformance, ExpectBeforeTheBytesWaitsForThem) {
  start();
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{0}, 4}};
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = bytes_of(4)}, complete.setter());
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  for (std::uint32_t layer = layers(); layer-- > 0;) {  // layers in reverse, halves swapped
    EXPECT_FALSE(complete.is_set());
    sending->send_layer(layer, 2, ids({30, 31}));
    sending->send_layer(layer, 0, ids({33, 32}));
  }
  sending->finish([](Result<transfer::Sent>) {});
  const auto done = complete.wait();
  ASSERT_TRUE(done && done->has_value());
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    EXPECT_TRUE(target_->holds(layer, BlockId{0}, 7, BlockId{33}));
    EXPECT_TRUE(target_->holds(layer, BlockId{1}, 7, BlockId{32}));
    EXPECT_TRUE(target_->holds(layer, BlockId{2}, 7, BlockId{30}));
    EXPECT_TRUE(target_->holds(layer, BlockId{3}, 7, BlockId{31}));
  }
}

TEST_P(Conformance, LargeMessagesInterleavedOverManyLeasesWithASmallWindow) {
  // 32 KiB blocks, runs of up to 16: messages up to half a MiB, two fit the window.
  start(small_layout(4, 256), 128, std::size_t{1} << 20);
  constexpr std::size_t kLeases = 8;
  struct One {
    std::unique_ptr<LeaseReceiver> landing;
    std::unique_ptr<transfer::LeaseSender> sending;
    Promised<Result<LeaseReceiver::Done>> complete;
    Promised<Result<transfer::Sent>> flushed;
  };
  std::vector<One> all(kLeases);
  for (std::size_t i = 0; i < kLeases; ++i) {
    const LeaseId lease = random_lease();
    const std::vector<BlockRun> runs{{BlockId{static_cast<std::uint32_t>(16 * i)}, 16}};
    all[i].landing = receiver_->open_lease(lease, Epoch{3}, runs, DigestMode::All);
    all[i].sending =
        sender_
            ->begin(
                peer_, make_grant(lease, Epoch{3}, source_->view().layout, runs), DigestMode::All)
            .value();
  }
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    for (std::size_t i = 0; i < kLeases; ++i) {
      std::vector<BlockId> blocks;
      for (std::uint32_t b = 0; b < 16; ++b) {
        blocks.emplace_back(static_cast<std::uint32_t>(16 * (kLeases - 1 - i) + b));
      }
      all[i].sending->send_layer(layer, 0, blocks);
    }
  }
  for (One& one : all) {
    one.sending->finish(one.flushed.setter());
  }
  for (One& one : all) {
    const auto sent = one.flushed.wait();
    ASSERT_TRUE(sent && sent->has_value());
    one.landing->expect(**sent, one.complete.setter());
  }
  for (std::size_t i = 0; i < kLeases; ++i) {
    const auto done = all[i].complete.wait();
    ASSERT_TRUE(done && done->has_value());
    EXPECT_EQ((*done)->bytes, bytes_of(16));
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      for (std::uint32_t b = 0; b < 16; ++b) {
        EXPECT_TRUE(
            target_->holds(layer,
                           BlockId{static_cast<std::uint32_t>(16 * i + b)},
                           7,
                           BlockId{static_cast<std::uint32_t>(16 * (kLeases - 1 - i) + b)}));
      }
    }
  }
  EXPECT_TRUE(target_->canaries_intact());
}

TEST_P(Conformance, ManySmallScatteredBlocks) {
  start(small_layout(2, 16), 512);
  const LeaseId lease = random_lease();
  std::vector<BlockRun> runs;
  std::vector<BlockId> blocks;
  std::vector<std::uint32_t> order(512);
  for (std::uint32_t i = 0; i < 512; ++i) {
    order[i] = i;
  }
  std::mt19937 rng(5);
  std::shuffle(order.begin(), order.end(), rng);
  for (std::uint32_t i = 0; i < 512; ++i) {
    runs.push_back({BlockId{order[i]}, 1});
    blocks.emplace_back(511 - i);
  }
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  sending->send_layer(0, 0, blocks);
  sending->send_layer(1, 0, blocks);
  sending->finish([](Result<transfer::Sent>) {});
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = bytes_of(512)}, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && done->has_value());
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    for (std::uint32_t i = 0; i < 512; ++i) {
      ASSERT_TRUE(target_->holds(layer, BlockId{order[i]}, 7, BlockId{511 - i}));
    }
  }
  EXPECT_TRUE(target_->canaries_intact());
}

TEST_P(Conformance, NothingToSendCompletesAtOnce) {
  start();
  const LeaseId lease = random_lease();
  auto landing = receiver_->open_lease(lease, Epoch{1}, {});
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, {})).value();
  sending->send_layer(0, 0, {});
  Promised<Result<transfer::Sent>> flushed;
  sending->finish(flushed.setter());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent && sent->has_value());
  EXPECT_EQ((*sent)->bytes, 0U);
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = 0}, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && done->has_value());
  EXPECT_EQ((*done)->transport, "none");
}

TEST_P(Conformance, AfterRevokeNoByteLands) {
  if (is_put(GetParam())) {
    GTEST_SKIP() << "PutConformance has what holds there";
  }
  start(small_layout(8, 256), 64, std::size_t{1} << 20);
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{0}, 64}};
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < 64; ++i) {
    blocks.emplace_back(i);
  }
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    sending->send_layer(layer, 0, blocks);
  }
  ASSERT_TRUE(eventually([&] { return receiver_->stats().bytes_received > 0; }));
  Done fenced;
  landing->revoke(fenced.setter());
  ASSERT_TRUE(fenced.wait());
  target_->fill_byte(std::byte{0});  // the blocks belong to somebody else now
  for (std::uint32_t layer = 4; layer < 8; ++layer) {
    sending->send_layer(layer, 0, blocks);
  }
  Promised<Result<transfer::Sent>> flushed;
  sending->finish(flushed.setter());
  ASSERT_TRUE(flushed.wait());
  ASSERT_TRUE(eventually([&] { return receiver_->stats().messages_dropped > 0; }));
  // A later lease over the same connection comes after everything of the first.
  const LeaseId next = random_lease();
  auto second = receiver_->open_lease(next, Epoch{2}, {{BlockId{63}, 1}});
  auto resend =
      sender_->begin(peer_, make_grant(next, Epoch{2}, source_->view().layout, {{BlockId{63}, 1}}))
          .value();
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    resend->send_layer(layer, 0, ids({9}));
  }
  resend->finish([](Result<transfer::Sent>) {});
  Promised<Result<LeaseReceiver::Done>> complete;
  second->expect({.bytes = bytes_of(1)}, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && done->has_value());
  expect_untouched_but(ids({63}));
}

TEST_P(Conformance, RevokeFailsAPendingExpect) {
  start();
  const LeaseId lease = random_lease();
  auto landing = receiver_->open_lease(lease, Epoch{1}, {{BlockId{0}, 1}});
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = bytes_of(1)}, complete.setter());
  Done fenced;
  landing->revoke(fenced.setter());
  ASSERT_TRUE(fenced.wait());
  const auto done = complete.wait();
  ASSERT_TRUE(done && !done->has_value());
  EXPECT_EQ(done->error().code, ErrorCode::GrantRevoked);
  Done again;
  landing->revoke(again.setter());
  EXPECT_TRUE(again.wait());
  EXPECT_EQ(receiver_->stats().open_leases, 0U);
}

TEST_P(Conformance, ACommitThatCannotBeIsRefused) {
  start();
  auto landing = receiver_->open_lease(random_lease(), Epoch{1}, {{BlockId{0}, 1}});
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = bytes_of(1) + 1}, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && !done->has_value());
  EXPECT_EQ(done->error().code, ErrorCode::ProtocolError);
  Promised<Result<LeaseReceiver::Done>> repeated;
  landing->expect({.bytes = bytes_of(1)}, repeated.setter());
  const auto second = repeated.wait();
  ASSERT_TRUE(second && !second->has_value());
  EXPECT_EQ(second->error().code, ErrorCode::ProtocolError);
}

TEST_P(Conformance, AbortDrainsAndQuiesces) {
  start(small_layout(8, 256), 64, std::size_t{1} << 20);
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{0}, 64}};
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < 64; ++i) {
    blocks.emplace_back(i);
  }
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    sending->send_layer(layer, 0, blocks);
  }
  Promised<Result<transfer::Sent>> flushed;
  sending->finish(flushed.setter());
  Done quiesced;
  sending->abort(quiesced.setter());
  ASSERT_TRUE(quiesced.wait());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent);
  EXPECT_TRUE(eventually([&] { return sender_->stats().open_sends == 0; }));
  Done again;
  sending->abort(again.setter());
  EXPECT_TRUE(again.wait());
  EXPECT_EQ(quiesced.times(), 1);
  EXPECT_EQ(flushed.times(), 1);
}

TEST_P(Conformance, DroppedHandlesLeaveNothingOpen) {
  start();
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{0}, 4}};
  {
    auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
    auto sending =
        sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
    sending->send_layer(0, 0, ids({0, 1, 2, 3}));
  }
  EXPECT_TRUE(eventually([&] { return receiver_->stats().open_leases == 0; }));
  EXPECT_TRUE(eventually([&] { return sender_->stats().open_sends == 0; }));
}

TEST_P(Conformance, BlocksOutsideTheGrantFailTheSend) {
  start();
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{0}, 2}};
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  sending->send_layer(0, 1, ids({4, 5}));
  Promised<Result<transfer::Sent>> flushed;
  sending->finish(flushed.setter());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent && !sent->has_value());
  EXPECT_EQ(sent->error().code, ErrorCode::InvalidArgument);
  expect_untouched_but({});
}

TEST_P(Conformance, AnotherLayoutIsRefusedAtTheGrant) {
  start();
  auto grant = make_grant(random_lease(), Epoch{1}, small_layout(5), {{BlockId{0}, 1}});
  const auto sending = sender_->begin(peer_, grant);
  ASSERT_FALSE(sending.has_value());
  EXPECT_EQ(sending.error().code, ErrorCode::Mismatch);
}

TEST_P(Conformance, TheSameBlockTwiceIsDroppedAndCountedOnce) {
  if (is_put(GetParam())) {
    GTEST_SKIP() << "nobody sees a block arrive";
  }
  start();
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{8}, 2}};
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    sending->send_layer(layer, 0, ids({1, 2}));
    sending->send_layer(layer, 0, ids({3, 4}));
  }
  ASSERT_TRUE(eventually([&] { return receiver_->stats().messages_dropped == layers(); }));
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = bytes_of(2)}, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && done->has_value());
  EXPECT_EQ((*done)->bytes, bytes_of(2));
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    EXPECT_TRUE(target_->holds(layer, BlockId{8}, 7, BlockId{1}));
    EXPECT_TRUE(target_->holds(layer, BlockId{9}, 7, BlockId{2}));
  }
}

TEST_P(Conformance, AStoppedReceiverIsSeenAndANewOneServes) {
  start();
  receiver_->stop();
  receiver_->stop();
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{0}, 2}};
  // Over a connection whose other end is gone a send may fail or its bytes may be lost; it never
  // hangs once the connection is dropped.
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  sending->send_layer(0, 0, ids({0, 1}));
  Done quiesced;
  sending->abort(quiesced.setter());
  sending.reset();
  peer_.reset();
  ASSERT_TRUE(quiesced.wait());

  receiver_ = rig_->make("d1", target_->view());
  inlet_ = std::move(receiver_->open_inlet()).value();
  peer_ = sender_->connect(inlet_->address(), nullptr).value();
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  for (std::uint32_t layer = 0; layer < layers(); ++layer) {
    sending->send_layer(layer, 0, ids({0, 1}));
  }
  sending->finish([](Result<transfer::Sent>) {});
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = bytes_of(2)}, complete.setter());
  const auto done = complete.wait();
  ASSERT_TRUE(done && done->has_value());
}

TEST_P(Conformance, StopEndsWhatIsOpen) {
  start();
  const LeaseId lease = random_lease();
  const std::vector<BlockRun> runs{{BlockId{0}, 2}};
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
  Promised<Result<LeaseReceiver::Done>> complete;
  landing->expect({.bytes = bytes_of(2)}, complete.setter());
  sender_->stop();
  receiver_->stop();
  Promised<Result<transfer::Sent>> flushed;
  sending->finish(flushed.setter());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent && !sent->has_value());
  EXPECT_EQ(sent->error().code, ErrorCode::Unavailable);
  const auto done = complete.wait();
  ASSERT_TRUE(done && !done->has_value());
  Done fenced;
  landing->revoke(fenced.setter());
  EXPECT_TRUE(fenced.wait());
}

TEST_P(Conformance, AThousandTinyTransfersLeaveNothing) {
  start();
  for (int i = 0; i < 1000; ++i) {
    const LeaseId lease = random_lease();
    const std::vector<BlockRun> runs{{BlockId{static_cast<std::uint32_t>(i % kBlocks)}, 1}};
    auto landing = receiver_->open_lease(lease, Epoch{1}, runs);
    auto sending =
        sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs)).value();
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      sending->send_layer(layer, 0, ids({3}));
    }
    Promised<Result<LeaseReceiver::Done>> complete;
    Promised<Result<transfer::Sent>> flushed;
    landing->expect({.bytes = bytes_of(1)}, complete.setter());
    sending->finish(flushed.setter());
    const auto done = complete.wait();
    ASSERT_TRUE(done && done->has_value());
    const auto sent = flushed.wait();
    ASSERT_TRUE(sent && sent->has_value());
  }
  EXPECT_TRUE(eventually(
      [&] { return receiver_->stats().open_leases == 0 && sender_->stats().open_sends == 0; }));
  EXPECT_EQ(receiver_->stats().bytes_received, 1000 * bytes_of(1));
}

TEST_P(Conformance, AForeignAddressIsRefused) {
  start();
  const auto refused = sender_->connect({}, nullptr);
  ASSERT_FALSE(refused.has_value());
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         Conformance,
                         ::testing::ValuesIn(tested_paths({"fake", "tcp", "shm", "shm_put"})),
                         [](const auto& info) { return info.param; });

// What holds where the receiver does not see the bytes arrive: the writer's word is what counts.
class PutConformance : public Conformance {
 protected:
  // A writer that has put a layer of blocks 0..3 and may put more.
  void start_putting() {
    start();
    lease_ = random_lease();
    landing_ = receiver_->open_lease(lease_, Epoch{4}, runs_);
    sending_ =
        sender_->begin(peer_, make_grant(lease_, Epoch{4}, source_->view().layout, runs_)).value();
    sending_->send_layer(0, 0, ids({0, 1, 2, 3}));
    ASSERT_TRUE(eventually([&] { return sender_->stats().bytes_sent > 0; }));
  }
  // A whole transfer over the same connection: what was under way before it has been seen by then.
  void serve_another() {
    const LeaseId lease = random_lease();
    const std::vector<BlockRun> runs{{BlockId{60}, 1}};
    auto landing = receiver_->open_lease(lease, Epoch{9}, runs);
    auto sending =
        sender_->begin(peer_, make_grant(lease, Epoch{9}, source_->view().layout, runs)).value();
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      sending->send_layer(layer, 0, ids({9}));
    }
    sending->finish([](Result<transfer::Sent>) {});
    Promised<Result<LeaseReceiver::Done>> complete;
    landing->expect({.bytes = bytes_of(1)}, complete.setter());
    const auto done = complete.wait();
    ASSERT_TRUE(done && done->has_value());
  }

  const std::vector<BlockRun> runs_{{BlockId{0}, 4}};
  LeaseId lease_;
  std::unique_ptr<LeaseReceiver> landing_;
  std::unique_ptr<transfer::LeaseSender> sending_;
};

TEST_P(PutConformance, ARevokedLeaseIsFencedByTheWritersEndOnly) {
  start_putting();
  Done fenced;
  landing_->revoke(fenced.setter());
  serve_another();
  EXPECT_FALSE(fenced.is_set());
  sending_->send_layer(1, 0, ids({0, 1, 2, 3}));  // it has not heard yet
  serve_another();
  EXPECT_FALSE(fenced.is_set());
  Done quiesced;
  sending_->abort(quiesced.setter());
  ASSERT_TRUE(quiesced.wait());
  ASSERT_TRUE(fenced.wait());
  target_->fill_byte(std::byte{0});  // the blocks belong to somebody else now
  serve_another();
  expect_untouched_but(ids({60}));
}

TEST_P(PutConformance, AWriterThatFinishesARevokedLeaseIsQuietToo) {
  start_putting();
  Done fenced;
  landing_->revoke(fenced.setter());
  Promised<Result<transfer::Sent>> flushed;
  sending_->finish(flushed.setter());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent && sent->has_value());  // its Commit is what will be refused
  ASSERT_TRUE(fenced.wait());
}

TEST_P(PutConformance, QuiescedOnControlFences) {
  start_putting();
  Done fenced;
  landing_->revoke(fenced.setter());
  serve_another();
  EXPECT_FALSE(fenced.is_set());
  landing_->writer_quiesced();
  ASSERT_TRUE(fenced.wait());
  // The late word on the data connection changes nothing.
  Done quiesced;
  sending_->abort(quiesced.setter());
  ASSERT_TRUE(quiesced.wait());
  serve_another();
  EXPECT_EQ(fenced.times(), 1);
}

TEST_P(PutConformance, ALeaseThatNobodyClaimedIsFencedAtOnce) {
  start();
  auto landing = receiver_->open_lease(random_lease(), Epoch{1}, runs_);
  Done fenced;
  landing->revoke(fenced.setter());
  EXPECT_TRUE(fenced.wait());
}

TEST_P(PutConformance, NothingIsPutIntoALeaseThatIsOver) {
  start();
  const LeaseId lease = random_lease();
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs_);
  Done fenced;
  landing->revoke(fenced.setter());
  ASSERT_TRUE(fenced.wait());
  auto sending =
      sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, runs_)).value();
  sending->send_layer(0, 0, ids({0, 1, 2, 3}));
  Promised<Result<transfer::Sent>> flushed;
  sending->finish(flushed.setter());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent && !sent->has_value());
  EXPECT_EQ(sent->error().code, ErrorCode::GrantRevoked);
  EXPECT_EQ(receiver_->stats().dropped_by_reason.at("unknown_lease"), 1U);
  expect_untouched_but({});
}

TEST_P(PutConformance, ALeaseIsClaimedByOneWriterOnly) {
  start_putting();
  auto second =
      sender_->begin(peer_, make_grant(lease_, Epoch{4}, source_->view().layout, runs_)).value();
  second->send_layer(0, 0, ids({40, 41, 42, 43}));
  Promised<Result<transfer::Sent>> flushed;
  second->finish(flushed.setter());
  const auto sent = flushed.wait();
  ASSERT_TRUE(sent && !sent->has_value());
  EXPECT_EQ(sent->error().code, ErrorCode::GrantRevoked);
  EXPECT_TRUE(target_->holds(0, BlockId{0}, 7, BlockId{0}));
}

TEST_P(PutConformance, AGrantOfBlocksThatTheArenaDoesNotHaveFailsTheSend) {
  start();
  const LeaseId lease = random_lease();
  auto landing = receiver_->open_lease(lease, Epoch{1}, runs_);
  for (const BlockRun bad : {BlockRun{BlockId{kBlocks}, 1},
                             BlockRun{BlockId{kBlocks - 1}, 2},
                             BlockRun{BlockId{0xfffffff0}, 4}}) {
    auto sending =
        sender_->begin(peer_, make_grant(lease, Epoch{1}, source_->view().layout, {bad})).value();
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < bad.count; ++i) {
      blocks.emplace_back(i);
    }
    sending->send_layer(0, 0, blocks);
    Promised<Result<transfer::Sent>> flushed;
    sending->finish(flushed.setter());
    const auto sent = flushed.wait();
    ASSERT_TRUE(sent && !sent->has_value());
    // The lease was claimed by the first of them.
    EXPECT_TRUE(sent->error().code == ErrorCode::InvalidArgument ||
                sent->error().code == ErrorCode::GrantRevoked);
  }
  expect_untouched_but({});
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         PutConformance,
                         ::testing::ValuesIn(tested_put_paths()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PutConformance);

}  // namespace
}  // namespace baton::testing
