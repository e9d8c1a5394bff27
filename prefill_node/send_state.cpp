#include "prefill_node/send_state.h"

#include <array>

namespace baton::prefill_node {

std::optional<SendState> next_state(SendState state, SendEvent event) {
  using enum SendState;
  constexpr auto kStay = std::nullopt;
  using Row = std::array<std::optional<SendState>, kSendEvents>;
  constexpr std::array<Row, kSendStates> kTable{{
      // Up      Flush     Commit      Accepted  Abort     Quiet
      {Streaming, kStay, kStay, kStay, Aborting, kStay},   // Connecting
      {kStay, Flushing, kStay, kStay, Aborting, kStay},    // Streaming
      {kStay, kStay, Committing, kStay, Aborting, kStay},  // Flushing
      {kStay, kStay, kStay, Done, Aborting, kStay},        // Committing
      {kStay, kStay, kStay, kStay, kStay, Done},           // Aborting
      {kStay, kStay, kStay, kStay, kStay, kStay},          // Done
  }};
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
}

}  // namespace baton::prefill_node
