#include "engine/kv/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "engine/kv/arena_populator.h"
#include "engine/kv/kv_memory.h"

namespace baton::engine {
namespace {

const KvLayout kLayout{.layers = 3, .kv_heads = 2, .head_dim = 16, .block_tokens = 32};

TEST(KvArena, IsZeroedAndWritableToTheLastByte) {
  auto arena = KvArena::create(kLayout, 5);
  ASSERT_TRUE(arena) << arena.error().message;
  const KvArenaView& view = arena->view();
  EXPECT_EQ(view.bytes(), std::size_t{5} * 3 * kLayout.block_bytes());
  for (std::size_t i = 0; i < view.bytes(); ++i) {
    ASSERT_EQ(view.base[i], std::byte{0});
  }
  view.base[view.bytes() - 1] = std::byte{1};
}

TEST(KvArena, TooLittleMemoryNamesTheNeedAndTheKey) {
  auto arena = KvArena::create(kLayout, 1000, std::uint64_t{1} << 20);
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().code, ErrorCode::OutOfMemory);
  const std::size_t needed = std::size_t{1000} * kLayout.block_bytes_all_layers();
  EXPECT_NE(arena.error().message.find(std::to_string(needed)), std::string::npos);
  EXPECT_NE(arena.error().message.find("kv.arena_mb"), std::string::npos);
}

TEST(KvArena, RefusesMoreThanTheMachineHas) {
  auto arena = KvArena::create(kLayout, 0xffffffff);
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().code, ErrorCode::OutOfMemory);
}

TEST(KvArena, ArenaSizeGivesWholeBlocks) {
  const KvLayout big{.layers = 30, .kv_heads = 3, .head_dim = 64, .block_tokens = 32};
  auto blocks = blocks_in(big, 512);
  ASSERT_TRUE(blocks);
  EXPECT_EQ(*blocks, (std::uint64_t{512} << 20) / big.block_bytes_all_layers());
  auto none = blocks_in({.layers = 1024, .kv_heads = 64, .head_dim = 256}, 16);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("kv.arena_mb"), std::string::npos);
}

TEST(KvArena, SystemSaysWhatIsAvailable) {
  EXPECT_GT(available_memory(), 0U);
}

TEST(ArenaPopulator, AllPagesComeAndContentsStay) {
  auto arena = KvArena::create(kLayout, 2048);
  ASSERT_TRUE(arena);
  const KvArenaView view = arena->view();
  const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> present((view.bytes() + page - 1) / page);
  const auto count_present = [&] {
    EXPECT_EQ(mincore(view.base, view.bytes(), present.data()), 0);
    return std::ranges::count_if(present, [](unsigned char p) { return (p & 1U) != 0; });
  };
  view.base[view.bytes() - 1] = std::byte{7};
  ASSERT_LT(count_present(), std::ssize(present));
  const ArenaPopulator populator(view);
  while (count_present() < std::ssize(present)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(view.base[view.bytes() - 1], std::byte{7});
  EXPECT_EQ(view.base[0], std::byte{0});
}

TEST(KvMemory, EvictsUnpinnedPrefixesWhenShort) {
  auto memory = KvMemory::create(kLayout, {.num_blocks = 4});
  ASSERT_TRUE(memory);
  KvMemory& kv = **memory;
  std::vector<TokenId> tokens(64);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<TokenId>(i);
  }
  {
    auto leases = kv.acquire(2);
    PrefixRef ref;
    for (std::uint32_t b = 0; b < 2; ++b) {
      kv.index().extend(ref, std::span(tokens).subspan(b * 32, 32), (*leases)[b]);
    }
    auto too_many = kv.acquire(3);
    EXPECT_FALSE(too_many);
  }
  EXPECT_EQ(kv.pool().count(BlockUse::Cached), 2U);
  EXPECT_EQ(kv.num_obtainable(), 4U);
  auto three = kv.acquire(3);
  ASSERT_TRUE(three);
  EXPECT_EQ(kv.index().num_blocks(), 1U);
  kv.check_invariants();
}

}  // namespace
}  // namespace baton::engine
