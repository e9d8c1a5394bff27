// The least a server built on Boost.Beast can do: reads a request whole, writes the same bytes to
// every one. What the gateway takes beyond it is what the gateway adds.
//
// Owner: baton-gateway-probe. Thread: the caller's, until the process is ended. Failure: IoError
// when the port is taken.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/error.h"

namespace baton::bench {

// `answer`: head and body of a response. `awake`: as a worker on another host (awake.h).
Status run_bare_server(std::uint16_t port, const std::string& answer, bool awake);

}  // namespace baton::bench
