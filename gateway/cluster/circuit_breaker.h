// Keeps work away from what fails. Closed, it lets everything through; after some faults in a row
// it opens for a while; then one request may try (half-open), and its outcome closes the breaker or
// opens it for twice as long. A breaker that opens again soon after it has closed goes on doubling.
//
// Every outcome says when its attempt began: what began before the last change of state says
// nothing about now. The try ends when its token does, however it ends, so that it cannot get lost.
//
// Owner: RouteHealth. Thread: the control strand; without a clock. Failure: none.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/exec/executor.h"

namespace baton::gateway {

struct BreakerLimits {
  std::uint32_t faults = 3;                         // in a row, to open
  std::chrono::milliseconds first_pause{1'000};     // open before the first try
  std::chrono::milliseconds longest_pause{60'000};  // it doubles up to this
};

enum class BreakerState : std::uint8_t { Closed, Open, HalfOpen };
std::string_view to_string(BreakerState state);

class CircuitBreaker {
 public:
  // True: it has opened by this.
  bool failed(const BreakerLimits& limits, TimePoint begun, TimePoint now);
  // True: it has closed by this.
  bool served(TimePoint begun, TimePoint now);

  BreakerState state(TimePoint now) const;
  // A request may go there now.
  bool takes(TimePoint now) const;
  // REQUIRES: half-open, and takes one. It is the one that tries as long as `token` lives.
  void try_with(const std::shared_ptr<const void>& token) { try_ = token; }
  // It has never opened, and the last outcome was good.
  bool is_new() const { return faults_ == 0 && pause_.count() == 0; }
  // Nothing was heard of it for so long that what is known is old.
  bool is_stale(const BreakerLimits& limits, TimePoint now) const;

  std::uint32_t faults() const { return faults_; }
  TimePoint open_until() const { return until_; }

 private:
  bool is_open_ = false;  // open or half-open
  std::uint32_t faults_ = 0;
  std::chrono::milliseconds pause_{0};  // the last one; 0: none yet
  TimePoint since_{};                   // the last change between open and closed
  TimePoint until_{};                   // then it is half-open
  TimePoint last_fault_{};
  std::weak_ptr<const void> try_;
};

}  // namespace baton::gateway
