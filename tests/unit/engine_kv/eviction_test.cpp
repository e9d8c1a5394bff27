// What goes first, and how much work it saves on traces: counted, not timed.
#include "engine/kv/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <unordered_set>

#include "common/types/prefix_hash.h"
#include "engine/kv/block_pool.h"
#include "engine/kv/block_table.h"
#include "engine/kv/prefix_index.h"

namespace baton::engine {
namespace {

EvictionItem block_at(std::uint64_t position, std::uint64_t hits) {
  EvictionItem made;
  made.position = position;
  made.hits = hits;
  return made;
}

void use(EvictionOrder& order, EvictionItem& item) {
  order.unlist(item);
  order.touch(item);
  order.list(item);
}

TEST(EvictionOrder, WhatWasNeverHitGoesFirstHoweverDear) {
  EvictionOrder order({});
  EvictionItem shared = block_at(0, 1);
  EvictionItem once = block_at(100'000, 0);
  use(order, shared);
  use(order, once);
  EXPECT_EQ(order.take(), &once);
  EXPECT_EQ(order.take(), &shared);
  EXPECT_EQ(order.take(), nullptr);
}

TEST(EvictionOrder, CheaperOneOfTwoGoesFirst) {
  EvictionOrder order({});
  EvictionItem deep = block_at(4'000, 1);
  EvictionItem shallow = block_at(0, 1);
  use(order, deep);
  use(order, shallow);
  EXPECT_EQ(order.take(), &shallow);
}

TEST(EvictionOrder, EqualOnesGoInTheOrderOfUse) {
  EvictionOrder order({});
  EvictionItem first = block_at(0, 0);
  EvictionItem second = block_at(0, 0);
  use(order, first);
  use(order, second);
  use(order, first);
  EXPECT_EQ(order.take(), &second);
}

TEST(EvictionOrder, WhatIsNotHitAnyMoreGoesInTheEnd) {
  EvictionOrder order({});
  EvictionItem old = block_at(1'000, 1'000'000);
  use(order, old);
  int others = 0;
  for (bool is_gone = false; !is_gone; ++others) {
    ASSERT_LT(others, 100);
    EvictionItem other = block_at(0, 0);
    use(order, other);
    is_gone = order.take() == &old;
    order.unlist(other);
  }
  EXPECT_GT(others, 2);
}

constexpr std::uint32_t kPromptBlock = 32;

// One number a block: prompts share their beginning where these are equal.
using Prompt = std::vector<TokenId>;

std::vector<TokenId> tokens_of(const Prompt& prompt) {
  std::vector<TokenId> tokens;
  for (const TokenId block : prompt) {
    tokens.insert(tokens.end(), kPromptBlock, block);
  }
  return tokens;
}

class Trace {
 public:
  explicit Trace(std::uint32_t seed) : random_(seed) {}

  // A quarter are long and never come again; the others are one of `kinds` system prompts, of
  // popularity 1/rank, with an end of their own.
  Prompt system_prompt_or_once(std::uint32_t kinds) {
    Prompt prompt;
    if (below(4) == 0) {
      add_new(prompt, 60 + below(65));
      return prompt;
    }
    double total = 0;
    for (std::uint32_t i = 1; i <= kinds; ++i) {
      total += 1.0 / i;
    }
    double left = total * below(1U << 20U) / (1U << 20U);
    std::uint32_t rank = 1;
    while (rank < kinds && left >= 1.0 / rank) {
      left -= 1.0 / rank++;
    }
    for (std::uint32_t i = 0; i < 5 + rank * 37 % 55; ++i) {
      prompt.push_back(static_cast<TokenId>(rank * 1'000 + i));
    }
    add_new(prompt, below(5));
    return prompt;
  }

  // A fifth are long and never come again; the others are the next turns of chats that begin alike.
  Prompt turn_of_chat_or_once() {
    Prompt prompt;
    if (below(5) == 0) {
      add_new(prompt, 60 + below(65));
      return prompt;
    }
    if (chats_.size() < 30 || below(10) == 0) {
      Prompt chat(10);
      std::ranges::generate(chat, [i = 0]() mutable { return i++; });
      chats_.push_back(chat);
      if (chats_.size() > 60) {
        chats_.erase(chats_.begin());
      }
    }
    std::size_t back = 0;  // later chats are likelier
    while (back + 1 < chats_.size() && below(8) != 0) {
      ++back;
    }
    Prompt& chat = chats_[chats_.size() - 1 - back];
    add_new(chat, 2 + below(7));
    return chat;
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return random_() % bound; }
  void add_new(Prompt& prompt, std::uint32_t blocks) {
    for (std::uint32_t i = 0; i < blocks; ++i) {
      prompt.push_back(next_new_++);
    }
  }

  std::mt19937 random_;
  TokenId next_new_ = 1'000'000;
  std::vector<Prompt> chats_;
};

// What was computed though it had been computed before; its unit does not matter.
std::uint64_t computed_again(const std::vector<Prompt>& prompts, EvictionPolicy policy) {
  BlockPool pool(
      {.base = nullptr,
       .layout = {.layers = 1, .kv_heads = 1, .head_dim = 16, .block_tokens = kPromptBlock},
       .num_blocks = 1'000});
  PrefixIndex index(kPromptBlock, true, policy);
  std::unordered_set<std::uint64_t> seen;
  std::uint64_t cost = 0;
  for (const Prompt& prompt : prompts) {
    const std::vector<TokenId> tokens = tokens_of(prompt);
    const auto blocks = static_cast<std::uint32_t>(prompt.size());
    PrefixRef found = index.find(tokens, blocks);
    index.count_use(found, tokens.size());
    const std::uint32_t held = found.num_blocks();
    std::uint64_t name = 0;
    for (std::uint32_t i = 0; i < blocks; ++i) {
      name = next_prefix_hash(
          name, std::span(tokens).subspan(std::size_t{i} * kPromptBlock, kPromptBlock));
      if (!seen.insert(name).second && i >= held) {
        cost +=
            kPromptBlock * (EvictionPolicy().attention_tokens + std::uint64_t{i} * kPromptBlock);
      }
    }
    if (pool.free() < blocks - held) {
      index.evict(blocks - held - pool.free());
    }
    BlockTable table(std::move(found), *pool.acquire(blocks - held));
    table.seal(index, kPromptBlock, tokens, blocks * kPromptBlock);
  }
  return cost;
}

TEST(EvictionTrace, SystemPromptsBesideLongOnesAreComputedLessThanByRecency) {
  Trace trace(1);
  std::vector<Prompt> prompts(1'500);
  std::ranges::generate(prompts, [&] { return trace.system_prompt_or_once(200); });
  const std::uint64_t by_recency = computed_again(prompts, EvictionPolicy::lru());
  const std::uint64_t by_cost = computed_again(prompts, {});
  RecordProperty("by_recency", std::to_string(by_recency));
  RecordProperty("by_cost", std::to_string(by_cost));
  EXPECT_LT(by_cost, by_recency * 85 / 100) << by_cost << " of " << by_recency;
  EXPECT_GT(by_cost, 0U);
}

TEST(EvictionTrace, TurnsOfChatsBesideLongPromptsAreComputedLessThanByRecency) {
  Trace trace(2);
  std::vector<Prompt> prompts(1'500);
  std::ranges::generate(prompts, [&] { return trace.turn_of_chat_or_once(); });
  const std::uint64_t by_recency = computed_again(prompts, EvictionPolicy::lru());
  const std::uint64_t by_cost = computed_again(prompts, {});
  RecordProperty("by_recency", std::to_string(by_recency));
  RecordProperty("by_cost", std::to_string(by_cost));
  EXPECT_LT(by_cost, by_recency * 85 / 100) << by_cost << " of " << by_recency;
  EXPECT_GT(by_cost, 0U);
}

}  // namespace
}  // namespace baton::engine
