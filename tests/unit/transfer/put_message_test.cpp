// What a writer that puts says, the offer it goes by, and the shared arena behind it.
#include "transfer/put_message.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/unit/transfer/arena.h"
#include "transfer/put_offer.h"
#include "transfer/receiver_session.h"
#include "transfer/shared_arena.h"

namespace baton::transfer {
namespace {

PutOffer offer_of(const KvArenaView& arena) {
  PutOffer offer;
  offer.base = reinterpret_cast<std::uintptr_t>(arena.base);
  offer.block_bytes = arena.layout.block_bytes();
  offer.layers = arena.layout.layers;
  offer.num_blocks = arena.num_blocks;
  return offer;
}

TEST(PutMessage, ComesBackAsItWasAndNothingElseDecodes) {
  PutMessage message;
  message.kind = PutKind::Done;
  message.path = PathKind::ShmPut;
  message.lane = Lane::Shm;
  message.epoch = Epoch{7};
  message.lease = LeaseId{1, 2};
  message.writer = {3, 4, 5};
  message.bytes = 6;
  const EncodedPut bytes = encode(message);
  PutMessage back;
  ASSERT_TRUE(decode(bytes, back));
  EXPECT_EQ(back.kind, message.kind);
  EXPECT_EQ(back.path, message.path);
  EXPECT_EQ(back.lane, message.lane);
  EXPECT_EQ(back.epoch, message.epoch);
  EXPECT_EQ(back.lease, message.lease);
  EXPECT_EQ(back.writer, message.writer);
  EXPECT_EQ(back.bytes, message.bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(std::span(bytes).first(size), back));
  }
  message.kind = PutKind::Claim;  // which has no bytes
  EXPECT_FALSE(decode(encode(message), back));
  message.kind = PutKind::Answer;  // which is yes or no, and names no writer
  message.bytes = 1;
  EXPECT_FALSE(decode(encode(message), back));
  message.writer = {};
  EXPECT_TRUE(decode(encode(message), back));
  message.path = PathKind::Am;
  EXPECT_FALSE(decode(encode(message), back));
}

TEST(PutOffer, PlacesLieInTheArenaOrNowhere) {
  testing::TestArena arena(testing::small_layout(3), 8);
  const PutOffer offer = offer_of(arena.view());
  for (std::uint32_t layer = 0; layer < 4; ++layer) {
    for (std::uint32_t first = 0; first < 10; ++first) {
      for (const std::uint32_t count : {0U, 1U, 3U, 8U, 0xffffffffU}) {
        const auto place = offer.offset_of(layer, {BlockId{first}, count});
        const bool is_inside = layer < 3 && count > 0 && first < 8 && count <= 8 - first;
        ASSERT_EQ(place.has_value(), is_inside);
        if (place) {
          EXPECT_EQ(arena.view().base + *place, arena.view().block(layer, BlockId{first}));
        }
      }
    }
  }
}

TEST(PutOffer, ImpossibleArenasAreRefused) {
  testing::TestArena arena(testing::small_layout(), 8);
  PutOffer good = offer_of(arena.view());
  EXPECT_TRUE(encode(good).empty());  // allows nothing
  EXPECT_TRUE(decode_offer({})->is_empty());
  good.allows_rdma = true;
  good.key.assign(20, std::byte{1});
  ASSERT_TRUE(decode_offer(encode(good)));
  const auto refused = [&](auto change) {
    PutOffer bad = good;
    change(bad);
    const auto decoded = decode_offer(encode(bad));
    return !decoded && decoded.error().code == ErrorCode::ProtocolError;
  };
  EXPECT_TRUE(refused([](PutOffer& o) { o.key.clear(); }));
  EXPECT_TRUE(refused([](PutOffer& o) { o.layers = 0; }));
  EXPECT_TRUE(refused([](PutOffer& o) { o.num_blocks = 0; }));
  EXPECT_TRUE(refused([](PutOffer& o) { o.block_bytes = 0; }));
  EXPECT_TRUE(refused([](PutOffer& o) { o.block_bytes = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](PutOffer& o) { o.base = ~std::uint64_t{0} - 5; }));
  EXPECT_TRUE(refused([](PutOffer& o) { o.mapped_bytes = 1; }));  // without the shared path
  EXPECT_TRUE(refused([](PutOffer& o) {
    o.allows_shm = true;
    o.mapped_bytes = o.arena_bytes() - 1;
  }));
}

TEST(SharedArena, KeepsItsContentsAndIsWrittenByAnotherProcess) {
  testing::TestArena arena(testing::small_layout(), 64);
  arena.fill(3);
  const auto shared = SharedArena::share(arena.view());
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_TRUE(arena.holds(2, BlockId{63}, 3, BlockId{63}));
  EXPECT_TRUE(arena.canaries_intact());
  PutOffer offer = offer_of(arena.view());
  (*shared)->describe(offer);
  const ProcessIdentity owner = own_identity();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mapped = MappedArena::map(offer, owner);
    if (!mapped) {
      ::_exit(1);
    }
    const auto place = offer.offset_of(1, {BlockId{5}, 1});
    std::memset((*mapped)->base() + *place, 0x5a, offer.block_bytes);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(arena.is_filled_with(1, BlockId{5}, std::byte{0x5a}));
  EXPECT_TRUE(arena.holds(1, BlockId{4}, 3, BlockId{4}));
  EXPECT_TRUE(arena.holds(1, BlockId{6}, 3, BlockId{6}));
}

TEST(SharedArena, AnotherFileIsNotMapped) {
  testing::TestArena arena(testing::small_layout(), 64);
  const auto shared = SharedArena::share(arena.view());
  ASSERT_TRUE(shared);
  PutOffer offer = offer_of(arena.view());
  (*shared)->describe(offer);
  ASSERT_TRUE(MappedArena::map(offer, own_identity()));
  PutOffer other = offer;
  other.inode += 1;
  EXPECT_EQ(MappedArena::map(other, own_identity()).error().code, ErrorCode::ProtocolError);
  other = offer;
  other.descriptor = 0;  // standard input
  EXPECT_FALSE(MappedArena::map(other, own_identity()));
  other = offer;
  other.mapped_bytes *= 2;
  EXPECT_EQ(MappedArena::map(other, own_identity()).error().code, ErrorCode::ProtocolError);
}

TEST(ReceiverSession, AClaimHoldsTheFenceOpenUntilItEnds) {
  testing::TestArena arena(testing::small_layout(), 8);
  const std::uint64_t bytes = arena.view().layout.block_bytes_all_layers() * 2;
  const auto make = [&] {
    return ReceiverSession(LeaseId{1, 2}, Epoch{3}, arena.view(), {{BlockId{0}, 2}});
  };
  ReceiverSession done = make();
  EXPECT_EQ(done.claim(Epoch{4}), DropReason::WrongEpoch);
  EXPECT_EQ(done.claim(Epoch{3}), DropReason::None);
  EXPECT_EQ(done.claim(Epoch{3}), DropReason::Claimed);
  done.expect({.bytes = bytes});
  EXPECT_EQ(done.state(), ReceiverState::Open);
  done.put_done(bytes, Lane::Rc);
  EXPECT_EQ(done.state(), ReceiverState::Complete);
  EXPECT_TRUE(done.is_fenced());
  EXPECT_EQ(done.claim(Epoch{3}), DropReason::Ended);

  ReceiverSession revoked = make();
  EXPECT_EQ(revoked.claim(Epoch{3}), DropReason::None);
  revoked.revoke();
  EXPECT_FALSE(revoked.is_fenced());
  revoked.unclaimed();
  EXPECT_TRUE(revoked.is_fenced());
  EXPECT_EQ(revoked.state(), ReceiverState::Revoked);

  // A commit of other bytes than the writer's word, or without it, is none.
  ReceiverSession fewer = make();
  EXPECT_EQ(fewer.claim(Epoch{3}), DropReason::None);
  fewer.put_done(bytes / 2, Lane::Rc);
  fewer.expect({.bytes = bytes});
  EXPECT_EQ(fewer.state(), ReceiverState::Failed);
  ReceiverSession silent = make();
  EXPECT_EQ(silent.claim(Epoch{3}), DropReason::None);
  silent.expect({.bytes = bytes});
  silent.unclaimed();
  EXPECT_EQ(silent.state(), ReceiverState::Failed);
  ReceiverSession more = make();
  EXPECT_EQ(more.claim(Epoch{3}), DropReason::None);
  more.put_done(bytes + 1, Lane::Rc);
  EXPECT_EQ(more.state(), ReceiverState::Failed);
}

}  // namespace
}  // namespace baton::transfer
