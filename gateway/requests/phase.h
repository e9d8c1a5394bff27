// Where a request stands, and which steps between places are legal: one table, never enum order.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstdint>
#include <string_view>

namespace baton::gateway {

enum class Phase : std::uint8_t {
  Queued,      // waits for a prefill credit and a place on a decode node
  Prefilling,  // given to a pair (or to a decode node alone); no token of this attempt yet
  Decoding,    // at least one token of this attempt
  Ending,      // stopped by the gateway; waits a moment for the nodes' figures
  Finished,
  Failed,
  Refused,  // waited until its first token could no longer come in time
  Cancelled
};

bool is_legal(Phase from, Phase to);
bool is_final(Phase phase);
std::string_view to_string(Phase phase);

}  // namespace baton::gateway
