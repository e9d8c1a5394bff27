// Requests of a model that no node has yet, for the pool controller.
//
// Thread: plain value. Failure: none.
#pragma once

#include <cstdint>

namespace baton::gateway {

struct WaitingPrompts {
  std::uint32_t requests = 0;
  std::uint64_t tokens = 0;
};

}  // namespace baton::gateway
