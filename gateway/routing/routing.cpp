#include "gateway/routing/routing.h"

#include <algorithm>
#include <memory>

namespace baton::gateway {
namespace {

constexpr std::chrono::seconds kStepsCount{10};  // that long after the last one

}  // namespace

Routing::Routing(RoutingOptions options)
    : options_(options), map_(options.mixer), sent_(options.mixer, options.linger) {}

Routing::Known& Routing::known(NodeHandle node) {
  const auto [at, is_new] = nodes_.try_emplace(node);
  if (is_new) {
    at->second.slot = map_.add();
  }
  return at->second;
}

void Routing::retire(PrefixMap::Slot slot) {
  map_.retire(slot);
  sent_.retire(slot);
}

void Routing::on_events(NodeHandle node, const BlockEvents& events) {
  map_.sweep();
  Known& state = known(node);
  if (events.reset || events.sequence != state.sequence + 1) {
    retire(state.slot);
    state.slot = map_.add();
  }
  state.sequence = events.sequence;
  sent_.announced(state.slot);
  map_.store(state.slot, events.stored);
  map_.remove(state.slot, events.removed);
}

void Routing::on_step(
    NodeHandle node, std::uint64_t steps, std::uint32_t running, double seconds, TimePoint now) {
  Known& state = known(node);
  if (steps > state.steps && running > 0 && seconds > 0) {
    if (now - state.stepped > kStepsCount) {
      state.step = {};
    }
    state.step.observe(1, running, seconds);
    state.stepped = now;
  }
  state.steps = steps;
}

void Routing::on_prefill(NodeHandle node,
                         std::uint32_t held,
                         std::uint32_t tokens,
                         double seconds) {
  if (tokens > 0 && seconds > 0) {
    const double count = tokens;
    known(node).prefill.observe(count, count * (held + count / 2), seconds);
  }
}

void Routing::on_node_down(NodeHandle node) {
  if (const auto found = nodes_.find(node); found != nodes_.end()) {
    retire(found->second.slot);
    nodes_.erase(found);
  }
  links_.forget(node);
}

void Routing::describe(std::span<NodeView> nodes, TimePoint now) const {
  for (NodeView& node : nodes) {
    const auto found = nodes_.find(node.handle);
    if (found == nodes_.end()) {
      continue;
    }
    if (const TwoTermFit& fit = found->second.prefill; fit.is_known()) {
      node.prefill_s_per_token = fit.a();
      node.prefill_s_per_meeting = fit.b();
    }
    if (now - found->second.stepped > kStepsCount) {
      node.step_s = 0;
    } else if (const TwoTermFit& fit = found->second.step; fit.is_known()) {
      node.step_base_s = fit.a();
      node.step_s_per_sequence = fit.b();
    }
  }
}

std::span<const std::uint32_t> Routing::held_tokens(std::span<const NodeView> nodes,
                                                    std::span<const TokenId> prompt,
                                                    PromptChains& chains,
                                                    TimePoint now) {
  sent_.expire(now);
  map_.sweep();
  held_.assign(nodes.size(), 0);
  std::uint32_t looked_up = 0;  // block size of `matched_`
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto found = nodes_.find(nodes[i].handle);
    if (found == nodes_.end()) {
      continue;
    }
    const std::uint32_t size = nodes[i].block_tokens;
    if (looked_up != size) {
      const PromptChain& chain = chain_of(chains, prompt, size);
      sent_.match(chain.hashes, map_.slots(), expected_);
      map_.match(chain.hashes, expected_, matched_);
      looked_up = size;
    }
    held_[i] = matched_[found->second.slot] * size;
  }
  return held_;
}

SentBlocks::Ticket Routing::sent(const Route& route,
                                 std::span<const NodeView> nodes,
                                 std::span<const TokenId> prompt,
                                 PromptChains& chains) {
  std::vector<SentBlocks::Part> computed;
  std::vector<SentBlocks::Part> moved;
  SentBlocks::Chain hashes;  // of blocks of `size` tokens
  std::uint32_t size = 0;
  for (const NodeView& node : nodes) {
    if (node.handle == route.decode || node.handle == route.prefill) {
      if (size != node.block_tokens) {
        size = node.block_tokens;
        hashes = std::make_shared<const std::vector<std::uint64_t>>(
            chain_of(chains, prompt, size).hashes);
      }
      const bool computes = node.handle == route.prefill || route.is_local();
      (computes ? computed : moved).push_back({known(node.handle).slot, hashes});
    }
  }
  return sent_.sent(std::move(computed), std::move(moved));
}

std::uint32_t Routing::announced(NodeHandle node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? 0 : map_.announced(found->second.slot);
}

}  // namespace baton::gateway
