// A hash table from byte strings to token ids. The strings stay in the vocabulary's own storage.
//
// Thread: const after building. Failure: none; an absent string gives -1.
#pragma once

#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace baton::engine {

class TextIndex {
 public:
  TextIndex() = default;
  explicit TextIndex(std::size_t expected) : slots_(std::bit_ceil(expected + expected / 2 + 2)) {}

  // The first id given for a text stays. REQUIRES: no more texts than expected; `text` outlives
  // the index.
  void add(std::string_view text, TokenId id) {
    const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].id < 0) {
        slots_[i] = {text.data(), static_cast<std::uint32_t>(text.size()), id};
        return;
      }
      if (slots_[i].text() == text) {
        return;
      }
    }
  }

  TokenId find(std::string_view text) const {
    if (slots_.empty()) {
      return -1;
    }
    const std::uint64_t hash = XXH3_64bits(text.data(), text.size());
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[i];
      if (slot.id < 0 || slot.text() == text) {
        return slot.id;
      }
    }
  }

 private:
  struct Slot {
    const char* data = nullptr;
    std::uint32_t size = 0;
    TokenId id = -1;
    std::string_view text() const { return {data, size}; }
  };
  std::vector<Slot> slots_;
};

}  // namespace baton::engine
