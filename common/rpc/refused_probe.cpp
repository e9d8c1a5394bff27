#include "common/rpc/refused_probe.h"

namespace baton {
namespace {

Counter refused(Metrics& metrics, const char* why) {
  return metrics.counter(
      "baton_control_refused_total", "Control connections that were turned away", {{"why", why}});
}

}  // namespace

RefusedProbe::RefusedProbe(Metrics& metrics)
    : hello(refused(metrics, "hello")),
      untrusted(refused(metrics, "untrusted")),
      malformed(refused(metrics, "malformed")),
      late(refused(metrics, "late")),
      crowd(refused(metrics, "crowd")) {}

}  // namespace baton
