// Arrays of the host's memory, one behind the other in one piece of the device's, where one copy
// brings them. The next ones take their place: the stream's order keeps them apart.
//
// Owner: what launches with them. Thread: its caller. Failure: as scratch.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/cuda/scratch.h"

namespace baton::kernels::cuda {

class HostImage {
 public:
  explicit HostImage(Device& device) : device_(device), memory_(device) {}

  void clear() { bytes_.clear(); }
  // Where the array begins. Equal sizes before it give equal places.
  template <class T>
  std::size_t add(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const std::size_t place = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(place + values.size_bytes());
    if (!values.empty()) {
      std::memcpy(bytes_.data() + place, values.data(), values.size_bytes());
    }
    return place;
  }
  void copy_in() {
    if (bytes_.size() > room_) {
      room_ = std::max(bytes_.size(), 2 * room_);  // steps grow a little at a time
    }
    std::byte* const to = memory_.at_least(room_);
    if (!bytes_.empty()) {
      device_.copy_in(to, bytes_.data(), bytes_.size());
    }
  }
  // Of what was copied in last. The same place has the same address until the image grows, when
  // memory is given back.
  template <class T>
  const T* at(std::size_t place) {
    return reinterpret_cast<const T*>(memory_.at_least(room_) + place);
  }

 private:
  static constexpr std::size_t kAlignment = 16;

  Device& device_;
  std::vector<std::byte> bytes_;
  Scratch<std::byte> memory_;
  std::size_t room_ = 0;
};

}  // namespace baton::kernels::cuda
