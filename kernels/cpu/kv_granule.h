// Where keys and values lie in the arena, and what comes next of them: attention asks memory for it
// while it multiplies.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::kernels::cpu {
namespace {

// Where 16 neighbouring positions of one kv head lie (a block holds a multiple of 16).
template <class T>
struct Granule {
  const T* keys;              // [head_dim] steps of block_tokens
  const T* values;            // [16][head_dim]
  const float* key_scales;    // [16], where the type has them
  const float* value_scales;  // [16]
};

template <class T, bool kScales>
[[gnu::always_inline]] inline Granule<T> granule(const AttentionJob& job, std::size_t position) {
  const std::size_t tokens = job.block_tokens;
  const std::size_t block = job.blocks[position / tokens];
  const std::byte* base = job.layer + block * job.block_bytes;
  const std::size_t all = std::size_t{job.kv_heads} * job.head_dim * tokens;
  const std::size_t head = std::size_t{job.kv_head} * job.head_dim * tokens;
  const std::size_t in_block = position % tokens;
  const auto* elements = reinterpret_cast<const T*>(base);
  Granule<T> out{};
  out.keys = elements + head + in_block;
  out.values = elements + all + head + in_block * job.head_dim;
  if constexpr (kScales) {
    const auto* scales = reinterpret_cast<const float*>(base + 2 * all * sizeof(T));
    out.key_scales = scales + std::size_t{job.kv_head} * tokens + in_block;
    out.value_scales = out.key_scales + std::size_t{job.kv_heads} * tokens;
  }
  return out;
}

enum class Half : std::uint8_t { Keys, Values };

// The share of a block's keys or values that 16 positions fetch: keys interleave a block's
// positions.
template <class T, bool kScales>
[[gnu::always_inline]] inline const std::byte* share(const AttentionJob& job,
                                                     Half half,
                                                     std::size_t position) {
  const Granule<T> at = granule<T, kScales>(job, position);
  if (half == Half::Values) {
    return reinterpret_cast<const std::byte*>(at.values);
  }
  const std::size_t in_block = position % job.block_tokens;
  return reinterpret_cast<const std::byte*>(at.keys - in_block + in_block * job.head_dim);
}

// What few queries read some positions later, in their order: a chunk's keys, its values, the next
// chunk, the next job; at the very end, again what is at hand.
struct Later {
  const AttentionJob* job;
  Half half;
  std::size_t position;
};
// So far ahead that memory answers in time, and no farther than the nearer caches hold.
template <class T>
[[gnu::always_inline]] inline std::size_t positions_ahead(const AttentionJob& job) {
  constexpr std::size_t kBytesAhead = 6 << 10;
  constexpr std::size_t kLeast = 2 * kLanes;
  const std::size_t fit = kBytesAhead / (job.head_dim * sizeof(T)) / kLeast * kLeast;
  return fit > kLeast ? fit : kLeast;
}
[[maybe_unused]] static inline Later what_follows(const AttentionJob& job,
                                                  Half half,
                                                  std::size_t base,
                                                  std::size_t low,
                                                  std::size_t high,
                                                  std::size_t at,
                                                  std::size_t ahead) {
  if (at + ahead < high) {
    return {&job, half, base + at + ahead};
  }
  std::size_t rest = at + ahead - high;
  if (half == Half::Keys) {
    if (rest < high - low) {
      return {&job, Half::Values, base + low + rest};
    }
    rest -= high - low;
  }
  const std::size_t next = base + kAttentionChunk;
  if (next < job.seen_end) {
    const std::size_t left = job.seen_end - next;
    const std::size_t count = left < kAttentionChunk ? left : kAttentionChunk;
    if (rest < 2 * count) {
      return rest < count ? Later{&job, Half::Keys, next + rest}
                          : Later{&job, Half::Values, next + rest - count};
    }
    rest -= 2 * count;
  }
  if (job.next != nullptr && job.next->seen_first + rest < job.next->seen_end) {
    return {job.next, Half::Keys, job.next->seen_first + rest};
  }
  return {&job, half, base + at};
}

// Fetches the scales of the keys that follow, and of the values that belong to them.
template <class Isa, class T>
[[gnu::always_inline]] inline void fetch_scales(const Later& later, std::size_t granules) {
  if (later.half == Half::Keys) {
    const Granule<T> at = granule<T, true>(*later.job, later.position);
    for (std::size_t i = 0; i < granules; ++i) {
      Isa::prefetch_far(at.key_scales + i * kLanes);
      Isa::prefetch_far(at.value_scales + i * kLanes);
    }
  }
}

// Fetches what two rows of 16 elements take of the bytes that are staged a block later. One by one,
// and no nearer than the second-level cache: the first one tracks too few lines to hide memory.
template <class Isa, class T>
[[gnu::always_inline]] inline const std::byte* fetch_two_rows(const std::byte* ahead) {
  for (std::size_t at = 0; at < 2 * kLanes * sizeof(T); at += 64) {
    Isa::prefetch_far(ahead + at);
  }
  return ahead + 2 * kLanes * sizeof(T);
}

}  // namespace
}  // namespace baton::kernels::cpu
