// The schema's part for objectives.
#include "common/config/schema.h"

namespace baton {
namespace {

void visit_tier_slo(std::string_view name, std::string_view help, TierSlo& s, ConfigVisitor& v) {
  v.begin_section(name, help);
  v.millis("ttft_ms", s.ttft, 1, 3'600'000, "Request received to first token.");
  v.millis("itl_ms", s.itl, 1, 3'600'000, "Between two tokens.");
  v.end_section();
}

}  // namespace

void visit_slo(SloSection& s, ConfigVisitor& v) {
  v.begin_section("slo",
                  "What is promised, for the alerts of `baton rules`. Targets are edges of the "
                  "histograms, so that they are counted exactly.");
  v.number("objective_permille",
           s.objective_permille,
           500,
           999,
           "Of 1000 events in 30 days, how many keep their target.");
  v.number("min_events",
           s.min_events,
           1,
           1'000'000,
           "Events in an alert's longer window below which nobody is called.");
  v.millis("queue_ms", s.queue, 1, 3'600'000, "Wait for a node of one phase.");
  v.millis("prefill_ms",
           s.prefill,
           1,
           3'600'000,
           "A prompt on its prefill node, the node's queue included.");
  v.millis("transfer_ms", s.transfer, 1, 3'600'000, "End of prefill to all blocks arrived.");
  v.begin_section("tiers", "What each tier's clients are promised.");
  visit_tier_slo("priority", "Tier priority.", s.tiers[0], v);
  visit_tier_slo("default", "Tier default.", s.tiers[1], v);
  visit_tier_slo("flex", "Tier flex.", s.tiers[2], v);
  v.end_section();
  v.end_section();
}

}  // namespace baton
