// A KV arena for tests: page-aligned, with canary bytes on both sides and contents that name their
// place, so that any byte in a wrong place is seen.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/types/kv_layout.h"

namespace baton::testing {

KvLayout small_layout(std::uint32_t layers = 3, std::uint32_t head_dim = 16);

class TestArena {
 public:
  TestArena(const KvLayout& layout, std::uint32_t num_blocks);

  KvArenaView view() const { return view_; }
  // Fills every block with bytes that depend on (salt, layer, block, offset).
  void fill(std::uint64_t salt);
  void fill_byte(std::byte value);
  // A block's bytes are those that `fill(salt)` of another arena gave to (layer, source).
  bool holds(std::uint32_t layer, BlockId block, std::uint64_t salt, BlockId source) const;
  bool is_filled_with(std::uint32_t layer, BlockId block, std::byte value) const;
  bool canaries_intact() const;

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  static constexpr std::size_t kCanaryBytes = 4096;
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t total_ = 0;
  KvArenaView view_;
};

}  // namespace baton::testing
