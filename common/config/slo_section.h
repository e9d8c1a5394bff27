// The service level objectives of cluster.yaml: what each tier's clients are promised, and how the
// promise is split between the phases.
//
// Thread: const after loading. Failure: none here; the loader checks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "common/config/gateway_section.h"

namespace baton {

struct TierSlo {
  std::chrono::milliseconds ttft{2'500};  // request received to first token
  std::chrono::milliseconds itl{100};     // between two tokens
};

struct SloSection {
  std::uint32_t objective_permille = 990;    // of events within their target
  std::uint32_t min_events = 30;             // in a long window, below which nobody is called
  std::chrono::milliseconds queue{1'000};    // a request's wait for nodes of one phase
  std::chrono::milliseconds prefill{2'000};  // of a prompt on its node, its queue included
  std::chrono::milliseconds transfer{250};   // end of prefill to the commit
  std::array<TierSlo, kNumTiers> tiers{
      TierSlo{std::chrono::milliseconds(1'000), std::chrono::milliseconds(50)},
      TierSlo{},
      TierSlo{std::chrono::milliseconds(20'000), std::chrono::milliseconds(500)}};
};

}  // namespace baton
