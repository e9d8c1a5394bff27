// Nodes of which role a request waits for, so that a long queue calls those who run that pool.
//
// Thread: plain values. Failure: none.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "gateway/routing/node_view.h"

namespace baton::gateway {

enum class WaitingOn : std::uint8_t { None, Prefill, Decode };
inline constexpr std::array<std::string_view, 3> kWaitingOnNames{"none", "prefill", "decode"};

// REQUIRES: a pair exists and has no capacity. While a prefill node could take another prompt it is
// decode that is full.
inline WaitingOn who_is_full(std::span<const NodeView> nodes) {
  const auto is_prefill = [](const NodeView& node) { return node.role == NodeRole::Prefill; };
  const auto takes_more = [&](const NodeView& node) {
    return is_prefill(node) && node.is_alive && !node.is_draining && node.credits_left > 0;
  };
  return std::ranges::any_of(nodes, is_prefill) && std::ranges::none_of(nodes, takes_more)
             ? WaitingOn::Prefill
             : WaitingOn::Decode;
}

}  // namespace baton::gateway
