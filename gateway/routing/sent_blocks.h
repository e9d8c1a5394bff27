// Blocks that nodes will hold soon: those of prompts just sent to them. On the node that computes
// they count as held from the moment a request is sent until, once computed, the node has told of
// its cache, or a while has passed; so the second of two requests with one beginning
// already finds the first one's node. On the node they are moved to they count from the end of
// computing on: before, nothing can be taken from there.
//
// Owner: Routing. Thread: the control strand. Failure: none; over kMaxBlocks nothing is expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/exec/executor.h"
#include "gateway/routing/expected_prefixes.h"
#include "gateway/routing/prefix_map.h"

namespace baton::gateway {

class SentBlocks {
 public:
  using Ticket = std::uint64_t;  // 0: nothing was sent
  using Chain = ExpectedPrefixes::Chain;
  static constexpr std::size_t kMaxBlocks = 1U << 20U;

  struct Part {
    PrefixMap::Slot slot = 0;
    Chain hashes;
  };

  // `linger`: how long blocks are expected at most after they were computed.
  SentBlocks(std::uint64_t mixer, Duration linger) : expected_(mixer), linger_(linger) {}

  Ticket sent(std::vector<Part> computed, std::vector<Part> moved = {});
  // It has been computed, or never will be. A ticket of 0 or one already settled is ignored.
  void settled(Ticket ticket, TimePoint now, bool was_computed);
  void expire(TimePoint now);
  // A node has told what its cache holds: what was computed before is no longer a matter of
  // expectation.
  void announced(PrefixMap::Slot slot);
  // Whoever has the slot from now on is another: what was sent to the one before does not count.
  void retire(PrefixMap::Slot slot);

  // For each slot below `slots`, how many leading blocks of the chain are expected there.
  void match(std::span<const std::uint64_t> chain,
             std::size_t slots,
             std::vector<std::uint32_t>& matched) const;

  // Blocks of the chains that are kept.
  std::size_t size() const { return blocks_; }

 private:
  struct Sent {
    ExpectedPrefixes::Holder holder;
    Chain hashes;
  };
  std::uint32_t life_of(PrefixMap::Slot slot) const {
    return slot < lives_.size() ? lives_[slot] : 0;
  }
  std::vector<Sent> with_lives(std::vector<Part> parts) const;
  void expect(const std::vector<Sent>& parts);
  void forget(const Sent& part);

  ExpectedPrefixes expected_;
  std::vector<std::uint32_t> lives_;  // by slot; those behind its end are in their first
  const Duration linger_;
  struct Open {
    std::vector<Sent> computed;
    std::vector<Sent> moved;
  };
  std::unordered_map<Ticket, Open> open_;
  struct Leaving {
    TimePoint at;
    std::vector<Sent> parts;
  };
  std::deque<Leaving> leaving_;  // in order of time
  std::size_t blocks_ = 0;       // of all chains in open_ and leaving_
  Ticket next_ticket_ = 1;
};

}  // namespace baton::gateway
