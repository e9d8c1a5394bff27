// How many nodes of each role there should be, and who may change that.
//
// Thread: const after loading. Failure: none here; the loader checks.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace baton {

struct PoolBounds {
  std::uint32_t min = 1;
  std::uint32_t max = 64;
};

struct PoolsSection {
  std::string change_roles = "off";  // off, dry_run, on
  std::string ratio = "auto";        // auto, or PREFILL:DECODE
  std::chrono::milliseconds interval{5'000};
  std::chrono::milliseconds cooldown{120'000};
  std::chrono::milliseconds drain{10'000};  // before what is in work is handed back
  PoolBounds prefill;
  PoolBounds decode;
};

// Prefill and decode of "1:2"; nothing for `auto` and for what is no ratio.
std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_ratio(const std::string& text);

}  // namespace baton
