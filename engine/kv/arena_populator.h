// Gives an arena its memory before it is needed. A page is cleared when it is first written, and a
// block lies in as many places as there are layers, twice: with huge pages one new block can cost a
// step a tenth of a second of clearing, and every running answer waits for it.
//
// Owner: the host, behind the arena's owner. Thread: one of its own, from construction until all is
// there or the object goes. Contents stay as they are, so blocks may be in use meanwhile. Failure:
// none; a kernel before Linux 5.14, or one without memory, leaves the rest for the first use.
#pragma once

#include <thread>

#include "common/types/kv_layout.h"

namespace baton::engine {

class ArenaPopulator {
 public:
  explicit ArenaPopulator(const KvArenaView& arena);
  // Returns when all is there. At most once.
  void wait() { thread_.join(); }

 private:
  std::jthread thread_;
};

}  // namespace baton::engine
