// The spans of a request that has ended: the request at the gateway and, below it, queue, prefill,
// transfer and decode. The phases on nodes are as long as the nodes measured them; they lie on the
// gateway's clock, since hosts' clocks differ.
//
// Thread: pure function. Failure: none.
#pragma once

#include <vector>

#include "common/obs/span_exporter.h"
#include "gateway/dashboard/ended_requests.h"

namespace baton::gateway {

// REQUIRES: `ended` has a trace and its time of day.
std::vector<Span> spans_of(const EndedRequest& ended);

}  // namespace baton::gateway
