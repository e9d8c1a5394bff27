#include "prefill_node/send_state.h"

#include <gtest/gtest.h>

#include <array>

namespace baton::prefill_node {
namespace {

TEST(SendState, EveryTransition) {
  using S = SendState;
  constexpr auto kStay = std::nullopt;
  struct Row {
    S state;
    std::array<std::optional<S>, kSendEvents> after;  // Up, Flush, Commit, Accepted, Abort, Quiet
  };
  const std::array<Row, kSendStates> table{{
      {S::Connecting, {S::Streaming, kStay, kStay, kStay, S::Aborting, kStay}},
      {S::Streaming, {kStay, S::Flushing, kStay, kStay, S::Aborting, kStay}},
      {S::Flushing, {kStay, kStay, S::Committing, kStay, S::Aborting, kStay}},
      {S::Committing, {kStay, kStay, kStay, S::Done, S::Aborting, kStay}},
      {S::Aborting, {kStay, kStay, kStay, kStay, kStay, S::Done}},
      {S::Done, {kStay, kStay, kStay, kStay, kStay, kStay}},
  }};
  for (const Row& row : table) {
    for (std::size_t i = 0; i < kSendEvents; ++i) {
      EXPECT_EQ(next_state(row.state, static_cast<SendEvent>(i)), row.after[i])
          << static_cast<int>(row.state) << " event " << i;
    }
  }
}

}  // namespace
}  // namespace baton::prefill_node
