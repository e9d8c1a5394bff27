#include "common/base/error.h"

namespace baton {

bool is_retryable(ErrorCode code) {
  switch (code) {
    case ErrorCode::Busy:
    case ErrorCode::NoBlocks:
    case ErrorCode::PeerDead:
    case ErrorCode::PeerStalled:
    case ErrorCode::StaleIncarnation:
    case ErrorCode::GrantRevoked:
    case ErrorCode::ChecksumMismatch:
    case ErrorCode::ProtocolError:
    case ErrorCode::Timeout:
    case ErrorCode::Preempted:
    case ErrorCode::Draining:
    case ErrorCode::Unavailable:
      return true;
    default:
      return false;
  }
}

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      return "invalid_argument";
    case ErrorCode::InvalidConfig:
      return "invalid_config";
    case ErrorCode::InvalidModel:
      return "invalid_model";
    case ErrorCode::ContextTooLong:
      return "context_too_long";
    case ErrorCode::NotFound:
      return "not_found";
    case ErrorCode::Unauthorized:
      return "unauthorized";
    case ErrorCode::Mismatch:
      return "mismatch";
    case ErrorCode::Busy:
      return "busy";
    case ErrorCode::NoBlocks:
      return "no_blocks";
    case ErrorCode::OutOfMemory:
      return "out_of_memory";
    case ErrorCode::PeerDead:
      return "peer_dead";
    case ErrorCode::PeerStalled:
      return "peer_stalled";
    case ErrorCode::StaleIncarnation:
      return "stale_incarnation";
    case ErrorCode::GrantRevoked:
      return "grant_revoked";
    case ErrorCode::ChecksumMismatch:
      return "checksum_mismatch";
    case ErrorCode::ProtocolError:
      return "protocol_error";
    case ErrorCode::Timeout:
      return "timeout";
    case ErrorCode::Preempted:
      return "preempted";
    case ErrorCode::Draining:
      return "draining";
    case ErrorCode::Cancelled:
      return "cancelled";
    case ErrorCode::Unavailable:
      return "unavailable";
    case ErrorCode::IoError:
      return "io_error";
    case ErrorCode::Internal:
      return "internal";
  }
  return "unknown";
}

}  // namespace baton
