// The states of one request's transfer and the one table of its transitions.
//
//   Connecting -up-> Streaming -flush-> Flushing -commit-> Committing -accepted-> Done
//        any of these -abort-> Aborting -quiet-> Done
//
// Thread: pure. Failure: none; an event that a state has no use for changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace baton::prefill_node {

enum class SendState : std::uint8_t {
  Connecting,
  Streaming,
  Flushing,
  Committing,
  Aborting,
  Done,
};
constexpr std::size_t kSendStates = 6;

enum class SendEvent : std::uint8_t {
  Up,        // the link to the decode node is there
  Flush,     // every block was given, and the commit's facts are known
  Commit,    // every byte is on the other side
  Accepted,  // the decode node has answered
  Abort,
  Quiet,  // nothing posted is left
};
constexpr std::size_t kSendEvents = 6;

// nullopt: the event changes nothing in this state.
std::optional<SendState> next_state(SendState state, SendEvent event);

}  // namespace baton::prefill_node
