// What the dashboard's page asks for: the status, the last requests, the targets.
//
// Thread: pure function. Failure: none.
#pragma once

#include <string>

#include "common/config/slo_section.h"
#include "gateway/dashboard/ended_requests.h"

namespace baton::gateway {

// `status`: as status_json gives it.
std::string dashboard_json(const std::string& status,
                           const EndedRequests& ended,
                           const SloSection& slo);

}  // namespace baton::gateway
