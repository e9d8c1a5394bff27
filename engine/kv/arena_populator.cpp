#include "engine/kv/arena_populator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>

namespace baton::engine {
namespace {

constexpr std::size_t kPiece = std::size_t{2} << 20U;  // a huge page: soon done, soon stopped

}  // namespace

ArenaPopulator::ArenaPopulator(const KvArenaView& arena)
    : thread_([arena](const std::stop_token& stop) {
        const std::size_t bytes = arena.bytes();
        for (std::size_t at = 0; at < bytes && !stop.stop_requested(); at += kPiece) {
          if (::madvise(arena.base + at, std::min(kPiece, bytes - at), MADV_POPULATE_WRITE) != 0) {
            return;
          }
        }
      }) {}

}  // namespace baton::engine
