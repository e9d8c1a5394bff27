// Device memory that one operation fills and the next of its kind fills again: the stream's order
// keeps them apart. It only grows.
//
// Owner: a backend. Thread: its caller. Failure: memory that is not to be had ends the process with
// a sentence; activations are sized when a model is loaded, so this is early.
#pragma once

#include <cstddef>

#include "common/base/check.h"
#include "kernels/cuda/device_memory.h"

namespace baton::kernels::cuda {

template <class T>
class Scratch {
 public:
  explicit Scratch(Device& device) : device_(device) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (data_ != nullptr) {
      device_.release(data_);
    }
  }

  T* at_least(std::size_t count) {
    if (count > count_) {
      if (data_ != nullptr) {
        device_.release(data_);
      }
      auto memory = device_.allocate(count * sizeof(T));
      BATON_CHECK(memory, memory.error().message);
      data_ = *memory;
      count_ = count;
    }
    return reinterpret_cast<T*>(data_);
  }
  // A copy of what is in the host's memory.
  const T* filled(const T* from, std::size_t count) {
    T* const to = at_least(count);
    if (count > 0) {
      device_.copy_in(reinterpret_cast<std::byte*>(to), from, count * sizeof(T));
    }
    return to;
  }

 private:
  Device& device_;
  std::byte* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace baton::kernels::cuda
