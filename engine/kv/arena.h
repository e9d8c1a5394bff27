// The memory of a node's keys and values: one anonymous mapping, zero-filled, advised to use huge
// pages, touched page by page as blocks are first written.
//
// Owner: KvMemory. Thread: created and destroyed by one; its bytes are written by the engine thread
// and by the data reactor. Failure: OutOfMemory that names the bytes needed, the bytes there are,
// and the key to lower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/types/kv_layout.h"

namespace baton::engine {

class KvArena {
 public:
  // `available` is what the process may still take; empty: asks the system.
  static Result<KvArena> create(const KvLayout& layout,
                                std::uint32_t num_blocks,
                                std::optional<std::uint64_t> available = std::nullopt);
  KvArena(KvArena&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  KvArena& operator=(KvArena&& other) noexcept;
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;
  ~KvArena();

  const KvArenaView& view() const { return view_; }

 private:
  explicit KvArena(KvArenaView view) : view_(view) {}
  void unmap();

  KvArenaView view_;  // base is null when moved from
};

// Blocks that fit in `arena_mb`; at least one whole block or an error that names `kv.arena_mb`.
Result<std::uint32_t> blocks_in(const KvLayout& layout, std::uint32_t arena_mb);

// Bytes this process may still take: the least of MemAvailable and what the limits of its control
// groups leave. 0 when the system does not say.
std::uint64_t available_memory();

}  // namespace baton::engine
