// Blocks that went to the file come back as they were, or not at all.
#include "engine/kv/file_tier.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <random>

#include "common/exec/manual_executor.h"
#include "engine/kv/block_table.h"

namespace baton::engine {
namespace {

constexpr std::uint32_t kTierBlock = 16;
constexpr KvLayout kTierLayout{
    .layers = 2, .kv_heads = 1, .head_dim = 16, .block_tokens = kTierBlock};

std::string make_folder() {
  std::string path = ::testing::TempDir() + "/baton-tier-XXXXXX";
  EXPECT_NE(::mkdtemp(path.data()), nullptr);
  return path;
}

TEST(TierFile, LeavesNoNameInItsFolder) {
  const std::string folder = make_folder();
  const auto file = TierFile::create(folder, 1, 300'000);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->num_slots(), 3U);
  std::memset(file->slot(2).data(), 7, file->slot(2).size());
  EXPECT_EQ(file->slot(2).back(), std::byte{7});
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST(TierFile, SaysWhatIsWrong) {
  const auto no_folder = TierFile::create("/nowhere/at/all", 1, 1'000);
  ASSERT_FALSE(no_folder);
  EXPECT_NE(no_folder.error().message.find("/nowhere/at/all"), std::string::npos);
  const auto small = TierFile::create(::testing::TempDir(), 1, std::size_t{2} << 20U);
  ASSERT_FALSE(small);
  EXPECT_NE(small.error().message.find("kv.file_tier_mb"), std::string::npos);
}

TEST(TierFile, SpaceThatIsNotThereIsAnErrorAtOnce) {
  const std::string folder = make_folder();
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit less = before;
  less.rlim_cur = std::size_t{1} << 20U;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  const auto file = TierFile::create(folder, 2, 1'000);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message.find(folder), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

std::vector<TokenId> block_sequence(std::size_t blocks, TokenId first) {
  std::vector<TokenId> tokens(blocks * kTierBlock);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = first + static_cast<TokenId>(i);
  }
  return tokens;
}

class FileTierTest : public ::testing::Test {
 protected:
  FileTierTest() {
    tier_.start([this] { ++freed_; });
  }
  ~FileTierTest() override {
    tier_.stop();
    executor_.run_until_idle();
    std::filesystem::remove(folder_);
  }

  // What the layers of block i of a context hold.
  static std::byte mark(std::span<const TokenId> tokens, std::uint32_t i, std::uint32_t layer) {
    return static_cast<std::byte>(tokens[std::size_t{i} * kTierBlock] * 31 + i * 7 + layer + 1);
  }
  void write(std::span<const TokenId> tokens, std::uint32_t i, BlockId block) {
    for (std::uint32_t layer = 0; layer < kTierLayout.layers; ++layer) {
      std::memset(kv_->arena().block(layer, block),
                  static_cast<int>(mark(tokens, i, layer)),
                  kTierLayout.block_bytes());
    }
  }
  bool is_right(std::span<const TokenId> tokens, std::uint32_t i, BlockId block) {
    for (std::uint32_t layer = 0; layer < kTierLayout.layers; ++layer) {
      const std::byte* const bytes = kv_->arena().block(layer, block);
      if (!std::all_of(bytes, bytes + kTierLayout.block_bytes(), [&](std::byte byte) {
            return byte == mark(tokens, i, layer);
          })) {
        return false;
      }
    }
    return true;
  }

  // A request over `tokens` that looks into both tiers: the blocks that it did not compute.
  struct Held {
    std::uint32_t in_arena = 0;
    std::uint32_t from_file = 0;
  };
  Held run(const std::vector<TokenId>& tokens, std::uint32_t most_from_file = 99) {
    const auto blocks = static_cast<std::uint32_t>(tokens.size() / kTierBlock);
    Held held;
    PrefixRef prefix = kv_->index().find(tokens, blocks);
    held.in_arena = prefix.num_blocks();
    std::vector<BlockLease> own;
    const std::uint32_t there =
        tier_.look(prefix, tokens, std::min(blocks - held.in_arena, most_from_file));
    if (there > 0) {
      bool is_done = false;
      auto leases = kv_->acquire(there);
      EXPECT_TRUE(leases);
      tier_.load(prefix, tokens, std::move(*leases), [&](FileTier::Loaded loaded) {
        own = std::move(loaded.blocks);
        own.resize(loaded.count);
        held.from_file = loaded.count;
        is_done = true;
      });
      executor_.run_until_idle();
      EXPECT_TRUE(is_done);
    }
    auto rest = kv_->acquire(blocks - held.in_arena - held.from_file);
    EXPECT_TRUE(rest);
    for (BlockLease& lease : *rest) {
      write(tokens, held.in_arena + static_cast<std::uint32_t>(own.size()), lease.id());
      own.push_back(std::move(lease));
    }
    BlockTable table(std::move(prefix), std::move(own));
    for (std::uint32_t i = 0; i < blocks; ++i) {
      EXPECT_TRUE(is_right(tokens, i, table.ids()[i])) << i;
    }
    table.seal(kv_->index(), kTierBlock, tokens, blocks * kTierBlock);
    return held;
  }
  // Time for every copy that is due.
  void copy() {
    executor_.advance(std::chrono::seconds(1));
    EXPECT_TRUE(tier_.is_quiet());
  }

  const std::string folder_ = make_folder();
  ManualExecutor executor_;
  std::unique_ptr<KvMemory> kv_ = *KvMemory::create(kTierLayout, {.num_blocks = 20});
  int freed_ = 0;
  // 2 KiB a block over both layers.
  FileTier tier_{
      *kv_, executor_, executor_, *TierFile::create(folder_, 1, 2 * kTierLayout.block_bytes())};
};

TEST_F(FileTierTest, EvictedBlocksComeBackAsTheyWere) {
  const auto a = block_sequence(6, 100);
  EXPECT_EQ(run(a).from_file, 0U);
  copy();
  EXPECT_EQ(tier_.num_blocks(), 0U) << "nothing goes soon";
  run(block_sequence(6, 5'000));
  copy();
  EXPECT_EQ(tier_.num_blocks(), 12U);
  EXPECT_GT(freed_, 0);
  kv_->index().evict(12);
  const Held held = run(a);
  EXPECT_EQ(held.in_arena, 0U);
  EXPECT_EQ(held.from_file, 6U);
  EXPECT_EQ(tier_.stats().hit_tokens, 6U * kTierBlock);
  EXPECT_EQ(run(a).in_arena, 6U);
  kv_->check_invariants();
}

TEST_F(FileTierTest, ChainGoesOnInTheFileBehindWhatIsInTheArena) {
  const auto a = block_sequence(10, 100);
  run(a);
  copy();
  kv_->index().evict(4);
  Held held = run(a);
  EXPECT_EQ(held.in_arena, 6U);
  EXPECT_EQ(held.from_file, 4U);
  // Brought back in part, or computed again: the rest of the chain is found all the same.
  kv_->index().evict(10);
  std::vector<TokenId> begin(a.begin(), a.begin() + 5 * kTierBlock);
  EXPECT_EQ(run(begin, 3).from_file, 3U);
  held = run(a);
  EXPECT_EQ(held.in_arena, 5U);
  EXPECT_EQ(held.from_file, 5U);
  // Another prompt that ends alike is another one.
  auto other = a;
  other[0] = 7;
  EXPECT_EQ(run(other).from_file, 0U);
}

TEST_F(FileTierTest, BrokenBlockIsForgottenAndComputed) {
  const auto a = block_sequence(10, 100);
  run(a);
  copy();
  kv_->index().evict(10);
  for (std::uint32_t i = 0; i < tier_.file().num_slots(); ++i) {
    if (tier_.file().slot(i)[0] == mark(a, 4, 0)) {
      tier_.file().slot(i)[1'500] ^= std::byte{1};
    }
  }
  EXPECT_EQ(run(a).from_file, 4U);
  EXPECT_EQ(tier_.stats().broken, 1U);
  EXPECT_EQ(tier_.num_blocks(), 9U);
}

TEST_F(FileTierTest, CopyingIsNoUse) {
  const auto a = block_sequence(6, 100);
  const auto b = block_sequence(6, 5'000);
  run(a);
  run(b);
  copy();
  kv_->index().evict(6);
  EXPECT_EQ(kv_->index().peek(a, 99), 0U);
  EXPECT_EQ(kv_->index().peek(b, 99), 6U);
}

TEST_F(FileTierTest, CancelledLoadHoldsItsBlocksUntilNothingWritesThem) {
  const auto a = block_sequence(10, 100);
  run(a);
  copy();
  kv_->index().evict(10);
  freed_ = 0;
  const PrefixRef none;
  ASSERT_EQ(tier_.look(none, a, 10), 10U);
  const TierLoadId id = tier_.load(
      none, a, *kv_->acquire(10), [](FileTier::Loaded) { ADD_FAILURE() << "it was cancelled"; });
  tier_.cancel(id);
  EXPECT_EQ(kv_->pool().free(), 10U);
  executor_.run_until_idle();
  EXPECT_EQ(kv_->pool().free(), 20U);
  EXPECT_GT(freed_, 0);
}

TEST_F(FileTierTest, SmallFileKeepsBeginningsOfChainsThatAreUsed) {
  FileTier* const large = &tier_;
  large->stop();
  FileTier small(*kv_, executor_, executor_, *TierFile::create(folder_, 1, std::size_t{64} << 10U));
  small.start([] {});
  ASSERT_EQ(small.file().num_slots(), 16U);
  for (TokenId i = 0; i < 20; ++i) {
    const auto tokens = block_sequence(6, 1'000 * i);
    BlockTable table({}, *kv_->acquire(6));
    table.seal(kv_->index(), kTierBlock, tokens, 6 * kTierBlock);
    table.clear();
    executor_.advance(std::chrono::seconds(1));
    EXPECT_LE(small.num_blocks(), 16U);
  }
  EXPECT_EQ(small.num_blocks(), 16U);
  kv_->index().evict(20);
  // The last two are there whole, of the one before only the beginning.
  const PrefixRef none;
  EXPECT_EQ(small.look(none, block_sequence(6, 19'000), 99), 6U);
  EXPECT_EQ(small.look(none, block_sequence(6, 18'000), 99), 6U);
  EXPECT_EQ(small.look(none, block_sequence(6, 17'000), 99), 4U);
  EXPECT_EQ(small.look(none, block_sequence(6, 16'000), 99), 0U);
  small.stop();
}

TEST_F(FileTierTest, RandomRequestsFindOnlyWhatIsTheirs) {
  std::mt19937 random(5);
  std::uint64_t from_file = 0;
  for (int step = 0; step < 600; ++step) {
    auto tokens = block_sequence(1 + random() % 9, static_cast<TokenId>(random() % 6) * 1'000);
    if (random() % 3 == 0) {
      const std::size_t block = random() % (tokens.size() / kTierBlock);
      tokens[block * kTierBlock] = static_cast<TokenId>(random() % 3);
    }
    from_file += run(tokens).from_file;
    if (random() % 2 == 0) {
      executor_.advance(std::chrono::milliseconds(60));
    }
    kv_->check_invariants();
  }
  EXPECT_GT(from_file, 100U);
  EXPECT_EQ(tier_.stats().broken, 0U);
}

}  // namespace
}  // namespace baton::engine
