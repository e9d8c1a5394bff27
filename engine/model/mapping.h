// Owns a file's read-only mapping.
//
// Thread: const after opening. Failure: NotFound, IoError or InvalidModel (an empty file), with the
// path.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "common/base/error.h"

namespace baton::engine {

class Mapping {
 public:
  static Result<Mapping> open(const std::string& path);
  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(base_), size_}; }

 private:
  Mapping() = default;

  void* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace baton::engine
