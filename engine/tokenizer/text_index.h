// A hash table from byte strings to token ids. Strings of up to 16 bytes lie in the table itself,
// so that a look-up touches one place; longer ones stay in the vocabulary's own storage.
//
// Thread: const after building. Failure: none; an absent string gives -1.
#pragma once

#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace baton::engine {

class TextIndex {
 public:
  TextIndex() = default;
  explicit TextIndex(std::size_t expected)
      : short_(std::bit_ceil(expected + expected / 2 + 2)),
        long_(std::bit_ceil(expected / 4 + 2)),
        shift_(64 - std::countr_zero(short_.size())) {}

  // The first id given for a text stays. REQUIRES: no more texts than expected, none empty; `text`
  // outlives the index.
  void add(std::string_view text, TokenId id) {
    if (text.size() <= kShort) {
      ShortSlot& slot = short_[short_place(short_key(text))];
      if (slot.id < 0) {
        slot = short_key(text);
        slot.id = id;
      }
      return;
    }
    if (2 * (long_count_ + 1) > long_.size()) {
      grow();
    }
    LongSlot& slot = long_[long_place(text)];
    if (slot.id < 0) {
      slot = {text.data(), static_cast<std::uint32_t>(text.size()), id};
      ++long_count_;
    }
  }

  TokenId find(std::string_view text) const {
    if (short_.empty()) {
      return -1;
    }
    return text.size() <= kShort ? short_[short_place(short_key(text))].id
                                 : long_[long_place(text)].id;
  }

 private:
  static constexpr std::size_t kShort = 16;
  // Two words that, with the size, hold every byte of the text.
  struct ShortSlot {
    std::uint64_t head = 0;
    std::uint64_t tail = 0;
    std::uint32_t size = 0;
    TokenId id = -1;
  };
  struct LongSlot {
    const char* data = nullptr;
    std::uint32_t size = 0;
    TokenId id = -1;
    std::string_view text() const { return {data, size}; }
  };

  template <class T>
  static std::uint64_t load(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  static ShortSlot short_key(std::string_view text) {
    const char* data = text.data();
    const std::size_t size = text.size();
    ShortSlot key;
    key.size = static_cast<std::uint32_t>(size);
    if (size >= 8) {
      key.head = load<std::uint64_t>(data);
      key.tail = load<std::uint64_t>(data + size - 8);
    } else if (size >= 4) {
      key.head = load<std::uint32_t>(data);
      key.tail = load<std::uint32_t>(data + size - 4);
    } else if (size > 0) {
      key.head = load<std::uint8_t>(data) | load<std::uint8_t>(data + size / 2) << 8 |
                 load<std::uint8_t>(data + size - 1) << 16;
    }
    return key;
  }
  std::size_t short_place(const ShortSlot& key) const {
    std::uint64_t hash = (key.head ^ (std::uint64_t{key.size} << 56)) * 0x9E3779B97F4A7C15ULL;
    hash = (std::rotl(hash, 32) ^ key.tail) * 0xD6E8FEB86659FD93ULL;
    hash ^= hash >> 32;
    std::size_t i = (hash * 0x9E3779B97F4A7C15ULL) >> shift_;
    while (short_[i].id >= 0 && (short_[i].head != key.head || short_[i].tail != key.tail ||
                                 short_[i].size != key.size)) {
      i = (i + 1) & (short_.size() - 1);
    }
    return i;
  }
  std::size_t long_place(std::string_view text) const {
    std::size_t i = XXH3_64bits(text.data(), text.size()) & (long_.size() - 1);
    while (long_[i].id >= 0 && long_[i].text() != text) {
      i = (i + 1) & (long_.size() - 1);
    }
    return i;
  }
  void grow() {
    std::vector<LongSlot> old(long_.size() * 2);
    old.swap(long_);
    for (const LongSlot& slot : old) {
      if (slot.id >= 0) {
        long_[long_place(slot.text())] = slot;
      }
    }
  }

  std::vector<ShortSlot> short_;
  std::vector<LongSlot> long_;
  std::size_t long_count_ = 0;
  int shift_ = 0;
};

}  // namespace baton::engine
