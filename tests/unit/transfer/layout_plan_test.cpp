// The planner against a byte map: where each element of keys and values must land, written down
// once more and without any cleverness.
#include "transfer/layout_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "transfer/staging.h"

namespace baton::transfer {
namespace {

using Random = std::mt19937_64;

std::uint32_t pick(Random& random, std::uint32_t low, std::uint32_t high) {
  return std::uniform_int_distribution<std::uint32_t>(low, high)(random);
}

// Byte offset of an element in its block, as the comments of KvOrder say it.
std::size_t offset_of(
    const KvLayout& l, bool values, std::size_t head, std::size_t dim, std::size_t token) {
  const std::size_t half = std::size_t{l.kv_heads} * l.head_dim * l.block_tokens;
  std::size_t at = 0;
  if (l.order == KvOrder::ByTokenAndHead) {
    at = (token * l.kv_heads + head) * l.head_dim + dim;
  } else if (l.order == KvOrder::KeysByDimValuesByToken && !values) {
    at = (head * l.head_dim + dim) * l.block_tokens + token;
  } else {
    at = (head * l.block_tokens + token) * l.head_dim + dim;
  }
  return ((values ? half : 0) + at) * l.element_bytes();
}

// The same of the scale of a head's token.
std::size_t scale_offset_of(const KvLayout& l, bool values, std::size_t head, std::size_t token) {
  const std::size_t all = std::size_t{l.kv_heads} * l.block_tokens;
  const std::size_t at = l.order == KvOrder::ByTokenAndHead ? token * l.kv_heads + head
                                                            : head * l.block_tokens + token;
  return 2 * all * l.head_dim * l.element_bytes() + ((values ? all : 0) + at) * l.scale_bytes();
}

// One side's memory: an arena, and the blocks that hold a stretch of a context.
struct Side {
  KvLayout layout;
  Range heads;
  std::uint32_t first_token = 0;
  std::vector<BlockId> blocks;
  std::vector<std::byte> memory;
  std::uint32_t num_blocks = 0;

  KvArenaView arena() { return {memory.data(), layout, num_blocks}; }
  LayoutSide side() const { return {layout, heads, first_token, blocks}; }
  // Of a model's head, dimension and position, which lie on this side.
  std::byte* element(std::uint32_t layer,
                     bool values,
                     std::uint32_t head,
                     std::uint32_t dim,
                     std::uint32_t token) {
    const std::uint32_t at = token - first_token;
    return arena().block(layer, blocks[at / layout.block_tokens]) +
           offset_of(layout, values, head - heads.first, dim, at % layout.block_tokens);
  }
  std::byte* scale(std::uint32_t layer, bool values, std::uint32_t head, std::uint32_t token) {
    const std::uint32_t at = token - first_token;
    return arena().block(layer, blocks[at / layout.block_tokens]) +
           scale_offset_of(layout, values, head - heads.first, at % layout.block_tokens);
  }
};

// Blocks that cover `tokens`, at random places and partly in runs.
void place(Side& side, Range tokens, Random& random) {
  const std::uint32_t bt = side.layout.block_tokens;
  side.first_token = tokens.first / bt * bt;
  const std::uint32_t count = (tokens.end() - side.first_token + bt - 1) / bt;
  side.num_blocks = count + pick(random, 0, 6);
  std::vector<std::uint32_t> ids(side.num_blocks);
  std::iota(ids.begin(), ids.end(), 0U);
  if (pick(random, 0, 2) != 0) {
    std::shuffle(ids.begin(), ids.end(), random);
  } else {
    std::rotate(ids.begin(), ids.begin() + pick(random, 0, side.num_blocks - 1), ids.end());
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    side.blocks.emplace_back(ids[i]);
  }
  side.memory.resize(side.arena().bytes());
}

KvLayout random_layout(Random& random, const KvLayout& like) {
  KvLayout out = like;
  out.block_tokens = 16 * pick(random, 1, 4);
  out.order = static_cast<KvOrder>(pick(random, 1, 3));
  return out;
}

// Runs the plan and compares every byte of the target with the oracle.
void check(Side& source, Side& target, Range heads, Range tokens, Random& random) {
  for (std::byte& byte : source.memory) {
    byte = static_cast<std::byte>(random());
  }
  constexpr std::byte kUntouched{0xA5};
  std::fill(target.memory.begin(), target.memory.end(), kUntouched);
  std::vector<std::byte> expected = target.memory;
  ASSERT_TRUE(check_plan(source.side(), target.side(), heads, tokens));
  std::vector<BlockCopy> copies;
  plan_layout(source.side(), target.side(), heads, tokens, copies);
  const std::size_t size = source.layout.element_bytes();
  std::uint64_t bytes = 0;
  for (const BlockCopy& copy : copies) {
    bytes += copy.bytes();
    for (std::uint32_t layer = 0; layer < source.layout.layers; ++layer) {
      run(copy, source.arena().block(layer, copy.source), target.arena().block(layer, copy.target));
    }
  }
  // As many bytes as elements and scales: with all of them right, none is written twice.
  const std::size_t scale_size = source.layout.scale_bytes();
  EXPECT_EQ(
      bytes,
      std::uint64_t{2} * heads.count * tokens.count * (source.layout.head_dim * size + scale_size));
  std::byte* const base = target.memory.data();
  for (std::uint32_t layer = 0; layer < source.layout.layers; ++layer) {
    for (const bool values : {false, true}) {
      for (std::uint32_t head = heads.first; head < heads.end(); ++head) {
        for (std::uint32_t dim = 0; dim < source.layout.head_dim; ++dim) {
          for (std::uint32_t token = tokens.first; token < tokens.end(); ++token) {
            std::memcpy(expected.data() + (target.element(layer, values, head, dim, token) - base),
                        source.element(layer, values, head, dim, token),
                        size);
          }
        }
        for (std::uint32_t token = tokens.first; scale_size > 0 && token < tokens.end(); ++token) {
          std::memcpy(expected.data() + (target.scale(layer, values, head, token) - base),
                      source.scale(layer, values, head, token),
                      scale_size);
        }
      }
    }
  }
  ASSERT_TRUE(target.memory == expected)
      << source.layout.to_string() << " -> " << target.layout.to_string();
}

TEST(LayoutPlan, EveryElementLandsWhereTheTargetsLayoutSays) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::uint32_t model_heads = pick(random, 1, 8);
    const KvLayout model{.layers = pick(random, 1, 2),
                         .kv_heads = model_heads,
                         .head_dim = pick(random, 1, 20),
                         .block_tokens = 16,
                         .dtype = static_cast<KvDType>(pick(random, 1, 5))};
    Side source{.layout = random_layout(random, model), .heads = {0, model_heads}};
    Side target{.layout = random_layout(random, model), .heads = {0, model_heads}};
    for (Side* side : {&source, &target}) {
      if (pick(random, 0, 1) == 0) {  // a rank
        const std::uint32_t ranks = pick(random, 1, 10);
        side->heads = heads_of_rank(model_heads, ranks, pick(random, 0, ranks - 1));
        side->layout.kv_heads = side->heads.count;
      }
    }
    const Range tokens{pick(random, 0, 150), pick(random, 1, 150)};
    place(source, tokens, random);
    place(target, tokens, random);
    check(source, target, intersect(source.heads, target.heads), tokens, random);
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST(LayoutPlan, EqualLayoutsCopyRunsOfWholeBlocks) {
  const KvLayout layout{.layers = 1, .kv_heads = 3, .head_dim = 8, .block_tokens = 32};
  const std::vector<BlockId> from{BlockId{4}, BlockId{5}, BlockId{6}, BlockId{9}};
  const std::vector<BlockId> to{BlockId{1}, BlockId{2}, BlockId{8}, BlockId{9}};
  std::vector<BlockCopy> copies;
  plan_layout({layout, {0, 3}, 0, from}, {layout, {0, 3}, 0, to}, {0, 3}, {0, 128}, copies);
  ASSERT_EQ(copies.size(), 3U);
  EXPECT_TRUE(copies[0].is_plain());
  EXPECT_EQ(copies[0].length, 2 * layout.block_bytes());
  EXPECT_EQ(copies[1].length, layout.block_bytes());
}

TEST(LayoutPlan, BlocksWithScalesAreStillOneRun) {
  const KvLayout layout{
      .layers = 1, .kv_heads = 3, .head_dim = 8, .block_tokens = 16, .dtype = KvDType::I8};
  EXPECT_EQ(layout.block_bytes(), 2U * 3 * 16 * (8 + 4));
  const std::vector<BlockId> from{BlockId{4}, BlockId{5}};
  const std::vector<BlockId> to{BlockId{1}, BlockId{2}};
  std::vector<BlockCopy> copies;
  plan_layout({layout, {0, 3}, 0, from}, {layout, {0, 3}, 0, to}, {0, 3}, {0, 32}, copies);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].length, 2 * layout.block_bytes());
}

TEST(LayoutPlan, AnotherBlockSizeTakesTwoCopiesForAPairOfBlocks) {
  const KvLayout small{.layers = 1, .kv_heads = 3, .head_dim = 8, .block_tokens = 16};
  KvLayout large = small;
  large.block_tokens = 32;
  const std::vector<BlockId> from{BlockId{0}, BlockId{1}};
  const std::vector<BlockId> to{BlockId{0}};
  std::vector<BlockCopy> copies;
  plan_layout({small, {0, 3}, 0, from}, {large, {0, 3}, 0, to}, {0, 3}, {0, 32}, copies);
  ASSERT_EQ(copies.size(), 4U);
  // Keys: a row of 16 tokens for each head and dimension. Values: a row of 16 x 8 for each head.
  EXPECT_EQ(copies[0].length, 32U);
  EXPECT_EQ(copies[0].loops[0].count, 24U);
  EXPECT_EQ(copies[1].length, 256U);
  EXPECT_EQ(copies[1].loops[0].count, 3U);
}

TEST(LayoutPlan, SidesThatDoNotFitAreRefused) {
  const KvLayout layout{.layers = 2, .kv_heads = 4, .head_dim = 8, .block_tokens = 16};
  const std::vector<BlockId> blocks{BlockId{0}, BlockId{1}};
  const LayoutSide side{layout, {0, 4}, 16, blocks};
  EXPECT_TRUE(check_plan(side, side, {0, 4}, {16, 32}));
  EXPECT_FALSE(check_plan(side, side, {0, 5}, {16, 32}));
  EXPECT_FALSE(check_plan(side, side, {0, 4}, {15, 2}));
  EXPECT_FALSE(check_plan(side, side, {0, 4}, {40, 9}));
  const auto changed = [&](auto change) {
    LayoutSide other = side;
    change(other.layout);
    return check_plan(side, other, {0, 4}, {16, 32});
  };
  EXPECT_FALSE(changed([](KvLayout& l) { l.dtype = KvDType::F32; }));
  EXPECT_FALSE(changed([](KvLayout& l) { l.layers = 3; }));
  EXPECT_FALSE(changed([](KvLayout& l) { l.head_dim = 16; }));
  EXPECT_FALSE(changed([](KvLayout& l) { l.kv_heads = 2; }));
  EXPECT_FALSE(changed([](KvLayout& l) { l.block_tokens = 17; }));
}

TEST(LayoutPlan, RanksSplitHeadsByIntegerDivision) {
  EXPECT_EQ(heads_of_rank(8, 2, 1), (Range{4, 4}));
  EXPECT_EQ(heads_of_rank(3, 2, 0), (Range{0, 1}));
  EXPECT_EQ(heads_of_rank(3, 2, 1), (Range{1, 2}));
  EXPECT_EQ(heads_of_rank(2, 8, 3), (Range{0, 1}));
  EXPECT_EQ(heads_of_rank(2, 8, 4), (Range{1, 1}));
}

// Every target rank's every head comes from one source rank that has it.
TEST(LayoutPlan, RanksOfBothSidesFindEachOther) {
  for (std::uint32_t heads = 1; heads <= 9; ++heads) {
    for (std::uint32_t sources = 1; sources <= 12; ++sources) {
      for (std::uint32_t targets = 1; targets <= 12; ++targets) {
        std::set<std::pair<std::uint32_t, std::uint32_t>> given;  // target, head
        for (const RankCopy& copy : plan_ranks(heads, sources, targets)) {
          const Range from = heads_of_rank(heads, sources, copy.source);
          const Range to = heads_of_rank(heads, targets, copy.target);
          EXPECT_EQ(intersect(from, copy.heads), copy.heads);
          EXPECT_EQ(intersect(to, copy.heads), copy.heads);
          for (std::uint32_t head = copy.heads.first; head < copy.heads.end(); ++head) {
            EXPECT_TRUE(given.emplace(copy.target, head).second) << "sent twice";
          }
        }
        std::size_t wanted = 0;
        for (std::uint32_t target = 0; target < targets; ++target) {
          wanted += heads_of_rank(heads, targets, target).count;
        }
        EXPECT_EQ(given.size(), wanted) << heads << " " << sources << " " << targets;
      }
    }
  }
}

// A whole m:n move of a context, rank by rank, equals the same context laid out at once.
TEST(LayoutPlan, SplitsOfBothSidesMayDiffer) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::uint32_t heads = pick(random, 1, 6);
    const std::uint32_t ranks = pick(random, 1, 8);
    const KvLayout model{.layers = 1, .kv_heads = heads, .head_dim = 5, .block_tokens = 16};
    const Range tokens{0, pick(random, 1, 100)};
    std::vector<Side> sources(pick(random, 1, 8));
    for (std::uint32_t i = 0; i < sources.size(); ++i) {
      sources[i].layout = random_layout(random, model);
      sources[i].heads = heads_of_rank(heads, static_cast<std::uint32_t>(sources.size()), i);
      sources[i].layout.kv_heads = sources[i].heads.count;
      place(sources[i], tokens, random);
    }
    // An element's value names it, the same on every rank that holds it.
    const auto value =
        [&](bool values, std::uint32_t head, std::uint32_t dim, std::uint32_t token) {
          return static_cast<std::uint16_t>(((token * 6 + head) * 5 + dim) * 2 + (values ? 1 : 0));
        };
    const auto each = [&](Side& side, auto visit) {
      for (const bool values : {false, true}) {
        for (std::uint32_t head = side.heads.first; head < side.heads.end(); ++head) {
          for (std::uint32_t dim = 0; dim < 5; ++dim) {
            for (std::uint32_t token = 0; token < tokens.count; ++token) {
              visit(side.element(0, values, head, dim, token), value(values, head, dim, token));
            }
          }
        }
      }
    };
    for (Side& side : sources) {
      each(side, [](std::byte* at, std::uint16_t number) { std::memcpy(at, &number, 2); });
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      Side target{.layout = random_layout(random, model),
                  .heads = heads_of_rank(heads, ranks, rank)};
      target.layout.kv_heads = target.heads.count;
      place(target, tokens, random);
      for (const RankCopy& part :
           plan_ranks(heads, static_cast<std::uint32_t>(sources.size()), ranks)) {
        if (part.target != rank) {
          continue;
        }
        Side& source = sources[part.source];
        std::vector<BlockCopy> copies;
        plan_layout(source.side(), target.side(), part.heads, tokens, copies);
        for (const BlockCopy& copy : copies) {
          run(copy, source.arena().block(0, copy.source), target.arena().block(0, copy.target));
        }
      }
      each(target, [](const std::byte* at, std::uint16_t number) {
        std::uint16_t found = 0;
        std::memcpy(&found, at, 2);
        ASSERT_EQ(found, number);
      });
    }
  }
}

TEST(Staging, GathersTheGrantsBlocksAndFillsTheRestWithZeros) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const KvLayout model{.layers = 2, .kv_heads = 2, .head_dim = 4, .block_tokens = 16};
    const Range context{0, pick(random, 1, 200)};
    Side source{.layout = random_layout(random, model), .heads = {0, 2}};
    place(source, context, random);
    for (std::byte& byte : source.memory) {
      byte = static_cast<std::byte>(random() | 1U);
    }
    KvGrant grant;
    grant.layout = random_layout(random, model);
    const std::uint32_t total = grant.layout.blocks_for(context.count);
    grant.prefix_blocks = pick(random, 0, total - 1);
    Staging staging(source.arena(), grant);
    staging.extend(std::make_shared<ContextBlocks>(ContextBlocks{source.blocks, context.count}));
    const std::uint32_t first = pick(random, 0, total - grant.prefix_blocks - 1);
    const std::uint32_t count = pick(random, 1, total - grant.prefix_blocks - first);
    std::vector<std::byte> out(count * grant.layout.block_bytes(), std::byte{0x77});
    staging.gather(1, first, count, out);
    const std::uint32_t bt = grant.layout.block_tokens;
    for (std::uint32_t i = 0; i < count * bt; ++i) {
      const std::uint32_t token = (grant.prefix_blocks + first) * bt + i;
      for (const bool values : {false, true}) {
        for (std::uint32_t head = 0; head < 2; ++head) {
          for (std::uint32_t dim = 0; dim < 4; ++dim) {
            const std::byte* at = out.data() + i / bt * grant.layout.block_bytes() +
                                  offset_of(grant.layout, values, head, dim, i % bt);
            const std::uint16_t zero = 0;
            const void* expected = &zero;
            if (token < context.count) {
              expected = source.element(1, values, head, dim, token);
            }
            ASSERT_EQ(std::memcmp(at, expected, 2), 0) << token;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::transfer
