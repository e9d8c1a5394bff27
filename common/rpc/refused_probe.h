// Counts control connections that were turned away, by reason.
//
// Owner: the network's options. Thread: any. Failure: none; a default one drops what it is given.
#pragma once

#include "common/obs/metrics.h"

namespace baton {

struct RefusedProbe {
  RefusedProbe() = default;
  explicit RefusedProbe(Metrics& metrics);

  Counter hello;      // its Hello: token, version, model, name
  Counter untrusted;  // no certificate of the cluster's authority
  Counter malformed;  // bytes that are no Hello
  Counter late;       // no whole Hello in time
  Counter crowd;      // the oldest of too many without a Hello
};

}  // namespace baton
