// When a failed attempt of a request is repeated on other nodes, and when it is enough.
//
// Nodes that die under a request are counted apart: it may be what kills them. So are faults that
// nodes report. Being preempted, drained or short of room is nobody's fault and bounded only so
// that a request without progress does not go round for ever. A count starts anew once the request
// has gained `progress_tokens` since its last failure of that kind: what made such progress is not
// what kills nodes.
//
// Thread: plain values. Failure: none.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/error.h"

namespace baton::gateway {

enum class FailoverReason : std::uint8_t {
  NodeDied,     // its connection ended
  NodeStalled,  // heartbeats stopped, or its data thread stands still
  Draining,     // the node hands its requests back
  Preempted,    // the decode node needed the blocks
  NoCapacity,   // busy or out of blocks after the grant
  Checksum,     // received blocks differ from those sent
  Peer,         // a node lost its peer, or the lease ended, or one broke the rules of the wire
  Timeout,      // a leg took too long
};
inline constexpr std::size_t kNumFailoverReasons = 8;

std::string_view to_string(FailoverReason reason);
// What the error of a node says about its attempt. Nothing: a repeat cannot help.
std::optional<FailoverReason> failover_reason(ErrorCode code);

struct FailoverLimits {
  std::uint32_t max_node_losses = 3;   // deaths of nodes that were at work on it
  std::uint32_t max_faults = 4;        // stalls and reported faults
  std::uint32_t max_handovers = 16;    // hand-overs without a new token between them
  std::uint32_t progress_tokens = 32;  // gained, so that a count starts anew
};

class FailoverBudget {
 public:
  explicit FailoverBudget(FailoverLimits limits = {}) : limits_(limits) {}

  // Notes a failure when `tokens` of output were there. `at_work`: the node that failed had begun
  // with the request. False: it was one too many.
  bool spend(FailoverReason reason, std::uint32_t tokens, bool at_work);
  // A fault noted before was the death of the node it was blamed on.
  bool was_death(std::uint32_t tokens, bool at_work);
  // How long to rest before the next attempt: only after faults, longer after each.
  std::chrono::milliseconds pause() const;

  std::uint32_t node_losses() const { return losses_.count; }
  std::uint32_t failovers() const { return failovers_; }

 private:
  struct Count {
    std::uint32_t count = 0;
    std::uint32_t at_tokens = 0;  // of output, at the last one
  };
  static void note(Count& count, std::uint32_t tokens, std::uint32_t progress);

  FailoverLimits limits_;
  Count losses_;
  Count faults_;
  Count handovers_;
  std::uint32_t failovers_ = 0;
  bool last_was_fault_ = false;
};

}  // namespace baton::gateway
