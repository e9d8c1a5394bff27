// The document of GET /baton/status: nodes, models and the queue, for operators and `baton status`.
//
// Thread: the control strand. Failure: none.
#pragma once

#include <string>

#include "gateway/cluster/membership.h"
#include "gateway/requests/request_tracker.h"

namespace baton::gateway {

std::string status_json(const NodeName& gateway,
                        bool is_ready,
                        const Membership& membership,
                        const RouteHealth& health,
                        const RequestTracker& tracker,
                        const std::string& pools,
                        TimePoint now);

}  // namespace baton::gateway
