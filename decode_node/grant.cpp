#include "decode_node/grant.h"

#include <array>

namespace baton::decode_node {

std::optional<GrantState> next_state(GrantState state, GrantEvent event) {
  using enum GrantState;
  constexpr auto kStay = std::nullopt;
  using Row = std::array<std::optional<GrantState>, kGrantEvents>;
  constexpr std::array<Row, kGrantStates> kTable{{
      // Commit  Landed    Revoke       Fenced
      {Landing, kStay, Quarantined, kStay},  // Granted
      {kStay, Fencing, Quarantined, kStay},  // Landing
      {kStay, kStay, Quarantined, Ended},    // Fencing
      {kStay, kStay, kStay, Ended},          // Quarantined
      {kStay, kStay, kStay, kStay},          // Ended
  }};
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
}

}  // namespace baton::decode_node
