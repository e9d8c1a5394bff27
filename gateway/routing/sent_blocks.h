// Blocks that nodes will hold soon: those of prompts just sent to them. On the node that computes
// they count as held from the moment a request is sent until it has been computed and a little
// longer, in which the node announces them; so the second of two requests with one beginning
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
#include "gateway/routing/block_table.h"
#include "gateway/routing/prefix_map.h"

namespace baton::gateway {

class SentBlocks {
 public:
  using Ticket = std::uint64_t;  // 0: nothing was sent
  static constexpr std::size_t kMaxBlocks = 1U << 20U;

  struct Part {
    PrefixMap::Slot slot = 0;
    std::vector<std::uint64_t> hashes;
  };

  // `linger`: how long blocks are expected after they were computed.
  SentBlocks(PrefixMap& map, std::uint64_t mixer, Duration linger)
      : map_(map), counts_(mixer), linger_(linger) {}

  Ticket sent(std::vector<Part> computed, std::vector<Part> moved = {});
  // It has been computed, or never will be. A ticket of 0 or one already settled is ignored.
  void settled(Ticket ticket, TimePoint now, bool was_computed);
  void expire(TimePoint now);

  std::size_t size() const { return counts_.size(); }

 private:
  static std::uint64_t key(PrefixMap::Slot slot, std::uint64_t hash) {
    return hash ^ ((std::uint64_t{slot} + 1) * 0x9e3779b97f4a7c15ULL);
  }

  PrefixMap& map_;
  BlockTable counts_;  // requests that expect a block on a slot
  const Duration linger_;
  void expect(const std::vector<Part>& parts);

  struct Open {
    std::vector<Part> computed;
    std::vector<Part> moved;
  };
  std::unordered_map<Ticket, Open> open_;
  struct Leaving {
    TimePoint at;
    std::vector<Part> parts;
  };
  std::deque<Leaving> leaving_;  // in order of time
  Ticket next_ticket_ = 1;
};

}  // namespace baton::gateway
