// Seconds that went by since a moment.
//
// Thread: any. Failure: none.
#pragma once

#include <chrono>

namespace baton::bench {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace baton::bench
