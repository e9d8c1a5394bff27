// The digest of a lease's blocks: what changes it, which damage each mode finds, and that both
// sides of every data path come to the same value.
#include "transfer/digest.h"

#include <algorithm>
#include <cstring>

#include "tests/unit/transfer/rig.h"

namespace baton::testing {
namespace {

using transfer::BlockDigest;
using transfer::DigestMode;
using transfer::LeaseReceiver;
using transfer::Sent;

constexpr LeaseId kLease{3, 4};

std::vector<std::byte> block_of(int seed) {
  std::vector<std::byte> block(512);
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed) * 31) % 251);
  }
  return block;
}

TEST(BlockDigest, OrderDoesNotMatterAndPlaceDoes) {
  const auto a = block_of(1);
  const auto b = block_of(2);
  const auto value = [](auto... adds) {
    BlockDigest digest(kLease, DigestMode::All);
    (digest.add(std::get<0>(adds), std::get<1>(adds), std::get<2>(adds)), ...);
    return digest.value();
  };
  using At = std::tuple<std::uint32_t, std::uint32_t, std::vector<std::byte>>;
  const auto right = value(At{0, 0, a}, At{0, 1, b});
  EXPECT_EQ(value(At{0, 1, b}, At{0, 0, a}), right);
  EXPECT_NE(value(At{0, 1, a}, At{0, 0, b}), right);               // swapped
  EXPECT_NE(value(At{0, 0, a}, At{0, 2, b}), right);               // elsewhere in the lease
  EXPECT_NE(value(At{0, 0, a}, At{1, 1, b}), right);               // another layer
  EXPECT_NE(value(At{0, 0, a}), right);                            // missing
  EXPECT_NE(value(At{0, 0, a}, At{0, 1, b}, At{0, 1, b}), right);  // doubled
  EXPECT_NE(value(At{0, 0, a}, At{0, 1, a}), right);               // stale
  for (std::size_t bit = 0; bit < a.size() * 8; ++bit) {
    auto flipped = a;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_NE(value(At{0, 0, flipped}, At{0, 1, b}), right) << "bit " << bit;
  }
}

TEST(BlockDigest, OffLooksAtNothingAndSampleAtOneInSixteen) {
  BlockDigest off;
  off.add(0, 0, block_of(1));
  EXPECT_EQ(off.value(), 0U);
  EXPECT_FALSE(off.is_on());
  int sampled = 0;
  int differing = 0;
  for (std::uint32_t layer = 0; layer < 64; ++layer) {
    for (std::uint32_t index = 0; index < 256; ++index) {
      const bool is_chosen = transfer::is_sampled(kLease, layer, index);
      sampled += is_chosen ? 1 : 0;
      differing += is_chosen != transfer::is_sampled({3, 5}, layer, index) ? 1 : 0;
      BlockDigest digest(kLease, DigestMode::Sample);
      digest.add(layer, index, block_of(1));
      ASSERT_EQ(digest.value() != 0, is_chosen);
    }
  }
  // 64 * 256 / 16 = 1024 on average; the choice is fixed, so this is no matter of luck.
  EXPECT_NEAR(sampled, 1024, 100);
  EXPECT_GT(differing, 1500);  // another lease, other blocks
}

TEST(DigestMode, NamesNumbersAndTheStricterOfTwo) {
  for (std::uint32_t number = 0; number <= 2; ++number) {
    const auto mode = transfer::digest_mode_of(number);
    ASSERT_TRUE(mode);
    EXPECT_EQ(transfer::parse_digest_mode(to_string(*mode)), mode);
  }
  EXPECT_FALSE(transfer::digest_mode_of(3));
  EXPECT_FALSE(transfer::parse_digest_mode("auto"));
  EXPECT_FALSE(transfer::parse_digest_mode(""));
  EXPECT_EQ(transfer::stricter(DigestMode::Sample, DigestMode::All), DigestMode::All);
  EXPECT_EQ(transfer::stricter(DigestMode::Sample, DigestMode::Off), DigestMode::Sample);
}

TEST(DigestMode, AutoIsAllWhereItCostsLessThanTwoPercent) {
  KvLayout layout;  // 30 layers of 3 heads of 64: 23 KB a token
  layout.layers = 30;
  layout.kv_heads = 3;
  layout.head_dim = 64;
  const double rate = 10e9;
  EXPECT_EQ(transfer::choose_digest_mode(layout, 2'000, rate), DigestMode::All);
  EXPECT_EQ(transfer::choose_digest_mode(layout, 20'000, rate), DigestMode::Sample);
  EXPECT_EQ(transfer::choose_digest_mode(layout, 20'000, 10 * rate), DigestMode::All);
  EXPECT_GT(transfer::measure_digest_rate(), 0);
}

// A writer and a receiver on the in-memory path, whose hook spoils what the test says.
class Spoiled : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLayers = 3;
  static constexpr std::uint32_t kBlocks = 8;

  Spoiled() { source_.fill(7); }

  // Sends 8 blocks of 3 layers; `fate` befalls the one message of layer 1.
  Result<LeaseReceiver::Done> transfer(LeaseId lease, DigestMode mode, FakeFate fate) {
    network_.set_hook([fate](const FakeMessage& message) {
      return message.header.layer == 1 ? fate : FakeFate::Deliver;
    });
    auto landing = receiver_->open_lease(lease, Epoch{1}, {{BlockId{4}, kBlocks}}, mode);
    auto sending =
        sender_
            ->begin(peer_,
                    make_grant(lease, Epoch{1}, source_.view().layout, {{BlockId{4}, kBlocks}}),
                    mode)
            .value();
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      blocks.emplace_back(i);
    }
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      sending->send_layer(layer, 0, blocks);
    }
    std::optional<Result<LeaseReceiver::Done>> out;
    sending->finish([&](const Result<Sent>& sent) {
      landing->expect(*sent, [&](Result<LeaseReceiver::Done> done) { out = std::move(done); });
    });
    network_.pump();
    EXPECT_TRUE(out.has_value());
    bool is_fenced = false;
    landing->revoke([&] { is_fenced = true; });
    network_.pump();
    EXPECT_TRUE(is_fenced);  // a lease that failed gives its blocks back like any other
    return out ? std::move(*out) : fail(ErrorCode::Internal, "nothing came");
  }

  // The index in the lease of a block that the fate damages.
  static std::uint32_t damaged(FakeFate fate) {
    switch (fate) {
      case FakeFate::Flip:
        return kBlocks / 2;
      case FakeFate::Tear:
        return kBlocks - 1;
      default:
        return 0;
    }
  }

  FakeNetwork network_;
  TestArena source_{small_layout(kLayers), 16};
  TestArena target_{small_layout(kLayers), 16};
  std::unique_ptr<transfer::Transport> sender_ = network_.make_transport("p0", source_.view());
  std::unique_ptr<transfer::Transport> receiver_ = network_.make_transport("d0", target_.view());
  std::unique_ptr<transfer::Inlet> inlet_ = std::move(receiver_->open_inlet()).value();
  std::shared_ptr<transfer::Peer> peer_ =
      sender_->connect(inlet_->address(), [](const Error&) {}).value();
};

constexpr std::array kDamages{FakeFate::Flip, FakeFate::Swap, FakeFate::Tear, FakeFate::Replay};

TEST_F(Spoiled, AllFindsEveryDamage) {
  std::uint64_t number = 1;
  EXPECT_TRUE(transfer({number++, 9}, DigestMode::All, FakeFate::Deliver));
  EXPECT_TRUE(transfer({number++, 9}, DigestMode::All, FakeFate::Duplicate));
  for (const FakeFate fate : kDamages) {
    target_.fill(number);  // no damage is hidden by what a transfer before has left
    const auto done = transfer({number++, 9}, DigestMode::All, fate);
    ASSERT_FALSE(done) << static_cast<int>(fate);
    EXPECT_EQ(done.error().code, ErrorCode::ChecksumMismatch);
  }
  EXPECT_EQ(receiver_->stats().digest_mismatches, kDamages.size());
  EXPECT_TRUE(transfer({number++, 9}, DigestMode::All, FakeFate::Deliver));
}

TEST_F(Spoiled, OffFindsNone) {
  std::uint64_t number = 1;
  for (const FakeFate fate : kDamages) {
    const auto done = transfer({number++, 9}, DigestMode::Off, fate);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->verified, DigestMode::Off);
  }
  EXPECT_EQ(receiver_->stats().digest_mismatches, 0U);
}

TEST_F(Spoiled, SampleFindsDamageOfTheBlocksItLooksAt) {
  for (const FakeFate fate : {FakeFate::Flip, FakeFate::Tear}) {
    int found = 0;
    int missed = 0;
    for (std::uint64_t number = 1; found == 0 || missed == 0; ++number) {
      const LeaseId lease{number, 17};
      target_.fill(number + 100);
      const auto done = transfer(lease, DigestMode::Sample, fate);
      const bool is_chosen = transfer::is_sampled(lease, 1, damaged(fate));
      ASSERT_EQ(!done, is_chosen) << "lease " << number;
      if (is_chosen) {
        EXPECT_EQ(done.error().code, ErrorCode::ChecksumMismatch);
      }
      ++(is_chosen ? found : missed);
    }
  }
}

// Every data path: both sides come to one value, whichever of them wants more.
class DigestPath : public ::testing::TestWithParam<std::string> {
 protected:
  DigestPath() : rig_(make_rig(GetParam())) {
    source_.fill(7);
    sender_ = rig_->make("p0", source_.view());
    receiver_ = rig_->make("d0", target_.view());
    inlet_ = std::move(receiver_->open_inlet()).value();
    peer_ = sender_->connect(inlet_->address(), [](const Error&) {}).value();
  }

  // Large messages and small, runs out of order.
  std::vector<BlockRun> runs() const {
    return {{BlockId{40}, 1}, {BlockId{20}, 3}, {BlockId{0}, 17}, {BlockId{39}, 1}};
  }

  // Sends 22 blocks of every layer and returns what Commit would carry.
  Sent send(LeaseId lease, DigestMode mode) {
    sending_ = sender_->begin(peer_, make_grant(lease, Epoch{1}, layout_, runs()), mode).value();
    std::vector<BlockId> blocks;
    for (std::uint32_t i = 0; i < 22; ++i) {
      blocks.emplace_back(i < 20 ? 10 + i : 63 - i);
    }
    for (std::uint32_t layer = 0; layer < layout_.layers; ++layer) {
      sending_->send_layer(layer, 0, blocks);
    }
    Promised<Result<Sent>> flushed;
    sending_->finish(flushed.setter());
    const auto sent = flushed.wait();
    EXPECT_TRUE(sent && sent->has_value());
    return sent && *sent ? **sent : Sent{};
  }

  static Result<LeaseReceiver::Done> expect(LeaseReceiver& landing, const Sent& sent) {
    Promised<Result<LeaseReceiver::Done>> complete;
    landing.expect(sent, complete.setter());
    auto done = complete.wait();
    EXPECT_TRUE(done.has_value());
    return done ? std::move(*done) : fail(ErrorCode::Internal, "nothing came");
  }

  const KvLayout layout_ = small_layout(4, 256);
  std::unique_ptr<Rig> rig_;
  TestArena source_{layout_, 64};
  TestArena target_{layout_, 64};
  std::unique_ptr<transfer::Transport> receiver_;
  std::unique_ptr<transfer::Inlet> inlet_;
  std::unique_ptr<transfer::Transport> sender_;
  std::shared_ptr<transfer::Peer> peer_;
  std::unique_ptr<transfer::LeaseSender> sending_;
};

TEST_P(DigestPath, TheStricterSideCounts) {
  constexpr std::array kModes{DigestMode::Off, DigestMode::Sample, DigestMode::All};
  for (const DigestMode wanted : kModes) {
    for (const DigestMode carried : kModes) {
      const LeaseId lease = random_lease();
      const auto landing = receiver_->open_lease(lease, Epoch{1}, runs(), wanted);
      const auto done = expect(*landing, send(lease, carried));
      if (carried < wanted) {
        ASSERT_FALSE(done);
        EXPECT_EQ(done.error().code, ErrorCode::ProtocolError);
      } else {
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_EQ(done->verified, carried);
      }
    }
  }
  EXPECT_EQ(receiver_->stats().digest_mismatches, 0U);
}

TEST_P(DigestPath, OtherBytesOrAnotherDigestAreAMismatch) {
  const LeaseId first = random_lease();
  auto landing = receiver_->open_lease(first, Epoch{1}, runs(), DigestMode::All);
  Sent sent = send(first, DigestMode::All);
  sent.digest ^= 1;
  auto done = expect(*landing, sent);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::ChecksumMismatch);
  landing.reset();
  // This side looks only when the commit tells it to: memory that went bad in between is found.
  const LeaseId second = random_lease();
  landing = receiver_->open_lease(second, Epoch{1}, runs());
  const std::uint64_t before = receiver_->stats().bytes_received;
  sent = send(second, DigestMode::All);
  ASSERT_TRUE(eventually([&] { return receiver_->stats().bytes_received == before + sent.bytes; }));
  *target_.view().block(3, BlockId{39}) ^= std::byte{0x80};
  done = expect(*landing, sent);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::ChecksumMismatch);
  EXPECT_TRUE(eventually([&] { return receiver_->stats().digest_mismatches == 2; }));
  Done fenced;
  landing->revoke(fenced.setter());
  EXPECT_TRUE(fenced.wait());
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         DigestPath,
                         ::testing::ValuesIn(tested_paths({"fake", "tcp", "shm"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace baton::testing
