#include "bench/route/decision_cost.h"

#include <chrono>
#include <vector>

#include "bench/route/noise.h"
#include "gateway/routing/routing.h"

namespace baton::bench {
namespace {

using namespace gateway;

constexpr std::uint32_t kBlockTokens = 32;
constexpr std::size_t kPrompts = 256;
constexpr std::size_t kDecisions = 100'000;

template <class F>
double nanoseconds_each(F&& decide) {
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < kDecisions; ++i) {
    decide(i);
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start)
             .count() /
         kDecisions;
}

}  // namespace

DecisionCost measure_decision(std::uint32_t nodes, std::uint32_t prompt_blocks) {
  Noise noise(1);
  Routing routing{{}};
  std::vector<PromptChains> prompts(kPrompts);
  for (PromptChains& chains : prompts) {
    chains.push_back({kBlockTokens, {}});
    for (std::uint32_t i = 0; i < prompt_blocks; ++i) {
      chains[0].hashes.push_back(noise.bits());
    }
  }
  std::vector<NodeView> views(nodes);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    views[i].handle = NodeHandle{i + 1};
    views[i].role = i < nodes / 2 ? NodeRole::Prefill : NodeRole::Decode;
    views[i].layout = KvLayout{.layers = 32, .kv_heads = 8, .head_dim = 128};
    views[i].credits_left = 4;
    views[i].max_batch = 32;
    views[i].running = i % 7;
    views[i].queued_tokens = i * 500;
    views[i].blocks_free = views[i].blocks_total = 10'000;
    std::vector<std::uint64_t> held;
    for (std::size_t block = 0; block < 10'000; ++block) {
      held.push_back(noise.bits());
    }
    for (std::size_t p = i; p < kPrompts; p += 4) {
      held.insert(held.end(), prompts[p][0].hashes.begin(), prompts[p][0].hashes.end());
    }
    routing.on_events(views[i].handle,
                      {.sequence = 1, .reset = true, .stored = held, .removed = {}});
  }
  RouteNeed need;
  need.prompt_tokens = need.context_tokens = prompt_blocks * kBlockTokens + 7;
  need.total_tokens = need.prompt_tokens + 256;
  need.links = &routing.links();
  DecisionCost cost;
  std::uint64_t used = 0;  // so that nothing is left out
  cost.lookup_ns = nanoseconds_each([&](std::size_t i) {
    used += routing.held_tokens(views, {}, prompts[i % kPrompts], TimePoint{})[0];
  });
  cost.whole_ns = nanoseconds_each([&](std::size_t i) {
    need.held_tokens = routing.held_tokens(views, {}, prompts[i % kPrompts], TimePoint{});
    need.draw = i + 1;
    used += choose_route(views, need)->prefill.value;
  });
  cost.known_blocks = routing.blocks().size() + (used == 0 ? 1 : 0);
  cost.bytes_per_block =
      static_cast<double>(routing.blocks().bytes()) / static_cast<double>(cost.known_blocks);
  return cost;
}

}  // namespace baton::bench
