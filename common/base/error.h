// The error type that every fallible call of Baton returns: a code for programs and a sentence for
// people. The sentence says what was wrong, where, and what to do about it.
//
// Thread: plain values. Failure: none.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace baton {

enum class ErrorCode {
  InvalidArgument,   // the caller's input is wrong; a retry cannot help
  InvalidConfig,     // a configuration file or flag is wrong
  InvalidModel,      // a model file is damaged or of an unknown kind
  ContextTooLong,    // prompt and output do not fit the model's context
  NotFound,          // no such file, model, node or request
  Unauthorized,      // wrong cluster token or key
  Mismatch,          // two sides disagree: version, model, layout or numerics
  Busy,              // no capacity now; a retry elsewhere or later helps
  NoBlocks,          // the KV pool has no free block
  OutOfMemory,       // the machine has too little memory for what was asked
  PeerDead,          // the other process is gone
  PeerStalled,       // the other process is alive and makes no progress
  StaleIncarnation,  // the message speaks of an earlier life of a node
  GrantRevoked,      // the lease is unknown, ended or of another epoch
  ChecksumMismatch,  // received bytes differ from what was sent
  ProtocolError,     // a frame or descriptor breaks the wire rules
  Timeout,           // the deadline has passed
  Preempted,         // the node took the request's blocks for others; resume it elsewhere
  Draining,          // the node hands its work on and takes nothing new
  Cancelled,         // somebody no longer wants the result
  Unavailable,       // shutting down, or no usable pair of nodes
  IoError,           // the operating system refused
  Internal,          // a fault of our own
};

// True when the same request may succeed on another node or a moment later.
bool is_retryable(ErrorCode code);
std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::Internal;
  std::string message;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

// `return fail(ErrorCode::NotFound, "…");` inside any function that returns Result or Status.
inline std::unexpected<Error> fail(ErrorCode code, std::string message) {
  return std::unexpected<Error>(Error{code, std::move(message)});
}

}  // namespace baton

// Hands an error of `expr` (a Result or Status) up; evaluates `expr` once.
#define BATON_TRY(expr)                                            \
  do {                                                             \
    if (auto baton_try_status = (expr); !baton_try_status) {       \
      return std::unexpected(std::move(baton_try_status).error()); \
    }                                                              \
  } while (false)

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)
// Declares `lhs` from the value of `expr`, or hands the error up.
#define BATON_ASSIGN(lhs, expr) BATON_ASSIGN_AS(lhs, expr, BATON_CONCAT(baton_result_, __LINE__))
#define BATON_ASSIGN_AS(lhs, expr, tmp)             \
  auto tmp = (expr);                                \
  if (!tmp) {                                       \
    return std::unexpected(std::move(tmp).error()); \
  }                                                 \
  lhs = std::move(*tmp)
