// Where the time of a request went: its phases on the gateway's clock, for the dashboard, for
// `baton trace` and for spans.
//
// The phases on nodes are as long as the nodes measured them and lie one after the other, since
// hosts' clocks differ; none lies outside of the request.
//
// Thread: pure function. Failure: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "gateway/dashboard/ended_requests.h"

namespace baton::gateway {

struct RequestPhase {
  const char* name;  // queue, prefill, transfer, decode
  const char* program;
  NodeName node;
  // After the request came.
  std::uint64_t from_us = 0;
  std::uint64_t to_us = 0;
};

std::vector<RequestPhase> phases_of(const EndedRequest& ended);

}  // namespace baton::gateway
