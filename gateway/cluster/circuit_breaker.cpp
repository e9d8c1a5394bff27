#include "gateway/cluster/circuit_breaker.h"

#include <algorithm>

namespace baton::gateway {

std::string_view to_string(BreakerState state) {
  switch (state) {
    case BreakerState::Closed:
      return "closed";
    case BreakerState::Open:
      return "open";
    case BreakerState::HalfOpen:
      return "half_open";
  }
  return "unknown";
}

bool CircuitBreaker::failed(const BreakerLimits& limits, TimePoint begun, TimePoint now) {
  if (begun < since_ || state(now) == BreakerState::Open) {
    return false;
  }
  ++faults_;
  last_fault_ = now;
  if (!is_open_ && faults_ < limits.faults) {
    return false;
  }
  const bool is_calm = !is_open_ && now - since_ > limits.longest_pause;
  pause_ = pause_.count() == 0 || is_calm ? limits.first_pause
                                          : std::min(pause_ * 2, limits.longest_pause);
  is_open_ = true;
  since_ = now;
  until_ = now + pause_;
  try_.reset();
  return true;
}

bool CircuitBreaker::served(TimePoint begun, TimePoint now) {
  if (begun < since_) {
    return false;
  }
  faults_ = 0;
  if (!is_open_) {
    return false;
  }
  is_open_ = false;
  since_ = now;
  try_.reset();
  return true;
}

BreakerState CircuitBreaker::state(TimePoint now) const {
  return !is_open_      ? BreakerState::Closed
         : now < until_ ? BreakerState::Open
                        : BreakerState::HalfOpen;
}

bool CircuitBreaker::takes(TimePoint now) const {
  return !is_open_ || (now >= until_ && try_.expired());
}

bool CircuitBreaker::is_stale(const BreakerLimits& limits, TimePoint now) const {
  return state(now) != BreakerState::Open && try_.expired() &&
         now - last_fault_ > 2 * limits.longest_pause;
}

}  // namespace baton::gateway
