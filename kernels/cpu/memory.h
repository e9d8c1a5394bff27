// Memory for kernels: large weight slabs on huge pages, and scratch buffers that only grow.
//
// Thread: one. Failure: OutOfMemory with the size; scratch that cannot grow throws std::bad_alloc.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace baton::kernels::cpu {

// Hands out neighbouring pieces of large slabs, so that a model's weights lie in load order on few
// pages. A slab lives as long as a piece of it.
class WeightMemory {
 public:
  // `nodes`: memory nodes over which slabs are spread (numa.h); fewer than two: as first touched.
  explicit WeightMemory(std::vector<int> nodes) : nodes_(std::move(nodes)) {}

  // 64-byte aligned, zeroed.
  Result<std::shared_ptr<std::byte>> take(std::size_t bytes);

 private:
  std::vector<int> nodes_;
  std::shared_ptr<std::byte> slab_;
  std::size_t size_ = 0;
  std::size_t used_ = 0;
};

// A 64-byte aligned buffer; `at_least` keeps what it has when that is enough, else its contents are
// lost.
template <class T>
class Scratch {
 public:
  T* at_least(std::size_t count) {
    if (count > count_) {
      data_.reset(static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64})));
      count_ = count;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t count_ = 0;
};

}  // namespace baton::kernels::cpu
