// Puts the token events of one choice into order: the first token comes from the prefill node and
// later ones from the decode node, and the two race on two connections. Gaps wait, repeats go.
//
// Thread: one owner. Failure: more waiting events than kMaxWaiting is a ProtocolError.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/error.h"
#include "common/types/token_event.h"

namespace baton::gateway {

class TokenOrder {
 public:
  static constexpr std::size_t kMaxWaiting = 4096;

  // Takes an event and appends to `ready` all that now follow without a gap; none repeats a token
  // given before. After an event with a finish nothing more comes.
  Status push(TokenEvent event, std::vector<TokenEvent>& ready);

  // A new attempt computes the same tokens again: what is already out will be dropped as repeats.
  void restart();

  // Tokens given so far.
  std::uint32_t next_index() const { return next_; }
  bool is_finished() const { return finished_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  void give(TokenEvent event, std::vector<TokenEvent>& ready);

  std::uint32_t next_ = 0;
  bool finished_ = false;
  std::uint64_t dropped_ = 0;                         // events that held nothing new
  std::multimap<std::uint32_t, TokenEvent> waiting_;  // by index, all above next_
};

}  // namespace baton::gateway
