// The schema's part for the sizes of pools.
#include <charconv>

#include "common/config/schema.h"

namespace baton {
namespace {

constexpr std::uint32_t kMostNodes = 4096;
const TextRule kRatio{TextRule::Form::Ratio, true, {}};
const TextRule kChangeRoles{TextRule::Form::Choice, true, {"off", "dry_run", "on"}};

void visit_bounds(std::string_view name, std::string_view help, PoolBounds& s, ConfigVisitor& v) {
  v.begin_section(name, help);
  v.number("min", s.min, 1, kMostNodes, "Never fewer, whatever the load.");
  v.number("max", s.max, 1, kMostNodes, "Never more; at least min.");
  v.end_section();
}

}  // namespace

void visit_pools(PoolsSection& s, ConfigVisitor& v) {
  v.begin_section("pools",
                  "Sizes of the two pools of a model (docs/pools.md). What they should be is "
                  "exported as baton_pool_desired_replicas in any case.");
  v.text("change_roles",
         s.change_roles,
         kChangeRoles,
         "on: the gateway gives nodes with any_role the role that lacks nodes. dry_run: it logs "
         "what it would do.");
  v.text("ratio",
         s.ratio,
         kRatio,
         "Prefill nodes to decode nodes, such as 1:2, kept whatever the load. auto: as the load "
         "and the targets of slo.tiers.default ask for.");
  v.millis("interval_ms",
           s.interval,
           50,
           600'000,
           "Between two looks at the load. Its memory is 36 of them.");
  v.millis("cooldown_ms",
           s.cooldown,
           0,
           86'400'000,
           "Shortest time between two changes, and before fewer replicas are asked for.");
  v.millis("drain_ms",
           s.drain,
           0,
           3'600'000,
           "What a node that changes its role may finish; the rest goes on at other nodes.");
  visit_bounds("prefill", "Prefill nodes.", s.prefill, v);
  visit_bounds("decode", "Decode nodes.", s.decode, v);
  v.end_section();
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_ratio(const std::string& text) {
  constexpr std::uint32_t kMostParts = 1000;
  std::uint32_t parts[2] = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::uint32_t& part : parts) {
    const auto [next, fault] = std::from_chars(at, end, part);
    if (fault != std::errc() || part == 0 || part > kMostParts) {
      return std::nullopt;
    }
    at = next;
    if (&part == parts && (at == end || *at++ != ':')) {
      return std::nullopt;
    }
  }
  return at == end ? std::optional(std::pair(parts[0], parts[1])) : std::nullopt;
}

}  // namespace baton
