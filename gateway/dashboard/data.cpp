#include "gateway/dashboard/data.h"

#include <fmt/format.h>

namespace baton::gateway {

std::string dashboard_json(const std::string& status,
                           const EndedRequests& ended,
                           const SloSection& slo) {
  std::string tiers;
  for (std::size_t i = 0; i < kNumTiers; ++i) {
    tiers += fmt::format(R"({}{{"name":"{}","ttft_ms":{},"itl_ms":{}}})",
                         i == 0 ? "" : ",",
                         kTierNames[i],
                         slo.tiers[i].ttft.count(),
                         slo.tiers[i].itl.count());
  }
  return fmt::format(
      R"({{"status":{},"targets":{{"objective":{},"queue_ms":{},"prefill_ms":{},"transfer_ms":{},)"
      R"("tiers":[{}]}},"requests":{}}})",
      status,
      slo.objective_permille / 1000.0,
      slo.queue.count(),
      slo.prefill.count(),
      slo.transfer.count(),
      tiers,
      ended.to_json());
}

}  // namespace baton::gateway
