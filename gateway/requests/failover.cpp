#include "gateway/requests/failover.h"

#include <algorithm>

namespace baton::gateway {
namespace {

constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLongestPause{1'000};

}  // namespace

std::string_view to_string(FailoverReason reason) {
  switch (reason) {
    case FailoverReason::NodeDied:
      return "node_died";
    case FailoverReason::NodeStalled:
      return "node_stalled";
    case FailoverReason::Draining:
      return "draining";
    case FailoverReason::Preempted:
      return "preempted";
    case FailoverReason::NoCapacity:
      return "no_capacity";
    case FailoverReason::Checksum:
      return "checksum";
    case FailoverReason::Peer:
      return "peer";
    case FailoverReason::Timeout:
      return "timeout";
  }
  return "unknown";
}

std::optional<FailoverReason> failover_reason(ErrorCode code) {
  if (!is_retryable(code)) {
    return std::nullopt;
  }
  switch (code) {
    case ErrorCode::Preempted:
      return FailoverReason::Preempted;
    case ErrorCode::Draining:
    case ErrorCode::Unavailable:
      return FailoverReason::Draining;
    case ErrorCode::Busy:
    case ErrorCode::NoBlocks:
      return FailoverReason::NoCapacity;
    case ErrorCode::ChecksumMismatch:
      return FailoverReason::Checksum;
    case ErrorCode::Timeout:
      return FailoverReason::Timeout;
    default:
      return FailoverReason::Peer;
  }
}

void FailoverBudget::note(Count& count, std::uint32_t tokens, std::uint32_t progress) {
  if (count.count > 0 && tokens >= count.at_tokens + progress) {
    count.count = 0;
  }
  ++count.count;
  count.at_tokens = tokens;
}

bool FailoverBudget::spend(FailoverReason reason, std::uint32_t tokens, bool at_work) {
  ++failovers_;
  last_was_fault_ = false;
  switch (reason) {
    case FailoverReason::NodeDied:
      if (at_work) {
        note(losses_, tokens, limits_.progress_tokens);
        return losses_.count < limits_.max_node_losses;
      }
      break;
    case FailoverReason::NodeStalled:
    case FailoverReason::Checksum:
    case FailoverReason::Peer:
    case FailoverReason::Timeout:
      last_was_fault_ = true;
      note(faults_, tokens, limits_.progress_tokens);
      return faults_.count < limits_.max_faults;
    default:
      break;
  }
  note(handovers_, tokens, 1);
  return handovers_.count < limits_.max_handovers;
}

bool FailoverBudget::was_death(std::uint32_t tokens, bool at_work) {
  faults_.count -= std::min(faults_.count, 1U);
  --failovers_;
  return spend(FailoverReason::NodeDied, tokens, at_work);
}

std::chrono::milliseconds FailoverBudget::pause() const {
  if (!last_was_fault_) {
    return std::chrono::milliseconds(0);
  }
  return std::min(kLongestPause, kFirstPause * (1U << std::min(faults_.count - 1, 10U)));
}

}  // namespace baton::gateway
