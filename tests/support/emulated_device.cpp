#include "tests/support/emulated_device.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <utility>

#include "common/base/check.h"

namespace baton::testing {
namespace {

using kernels::cuda::CopyShape;
using kernels::cuda::Device;
using kernels::cuda::Stream;

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(unsigned multiprocessors, std::size_t bytes)
      : multiprocessors_(multiprocessors), left_(bytes) {}
  ~EmulatedDevice() override {
    BATON_CHECK(memory_.empty(), "device memory that nobody gave back");
  }

  std::string description() const override { return "emulated"; }
  std::uint32_t compute_capability() const override { return 0; }
  unsigned multiprocessors() const override { return multiprocessors_; }
  Stream stream() const override { return {}; }

  Result<std::byte*> allocate(std::size_t bytes) override {
    if (bytes > left_) {
      return fail(ErrorCode::OutOfMemory,
                  fmt::format("the device has {} bytes left, {} are needed", left_, bytes));
    }
    // Not initialised: what a kernel does not write is no number.
    std::unique_ptr<std::byte, Free> memory(
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256})));
    std::memset(memory.get(), 0xFF, bytes);
    left_ -= bytes;
    std::byte* const at = memory.get();
    memory_.emplace(at, Piece{std::move(memory), bytes});
    return at;
  }
  void release(std::byte* memory) override {
    settle();
    const auto piece = memory_.find(memory);
    BATON_CHECK(piece != memory_.end(), "memory that is not the device's is given back");
    left_ += piece->second.bytes;
    memory_.erase(piece);
  }
  bool pin(std::byte*, std::size_t) override { return true; }
  void unpin(std::byte*) override {}

  void copy_in(std::byte* to, const void* from, std::size_t bytes) override {
    expect_own(to, bytes);
    std::memcpy(to, from, bytes);
  }
  void copy_in_pinned(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    for (std::size_t i = 0; i < shape.count; ++i) {
      copy_in(to + i * shape.to_stride, from + i * shape.from_stride, shape.bytes);
    }
  }
  void copy_inside(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    for (std::size_t i = 0; i < shape.count; ++i) {
      expect_own(from + i * shape.from_stride, shape.bytes);
    }
    copy_in_pinned(to, from, shape);
  }
  void copy_out(void* to, const std::byte* from, std::size_t bytes) override {
    expect_own(from, bytes);
    std::memcpy(to, from, bytes);
  }
  void follow() override {}
  void copy_out_later(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    for (std::size_t i = 0; i < shape.count; ++i) {
      expect_own(from + i * shape.from_stride, shape.bytes);
      later_.push_back({to + i * shape.to_stride, from + i * shape.from_stride, shape.bytes});
    }
  }
  Mark mark() override { return landed_ + later_.size(); }
  void wait(Mark mark) override {
    while (landed_ < mark) {
      const Copy& copy = later_.front();
      std::memcpy(copy.to, copy.from, copy.bytes);
      later_.pop_front();
      ++landed_;
    }
  }
  void settle() override { wait(mark()); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{256}); }
  };
  struct Piece {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes;
  };
  struct Copy {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };

  void expect_own(const std::byte* at, std::size_t bytes) const {
    auto piece = memory_.upper_bound(const_cast<std::byte*>(at));
    BATON_CHECK(piece != memory_.begin(), "a copy outside of the device's memory");
    --piece;
    BATON_CHECK(at + bytes <= piece->first + piece->second.bytes,
                "a copy outside of the device's memory");
  }

  const unsigned multiprocessors_;
  std::size_t left_;
  std::map<std::byte*, Piece> memory_;
  std::deque<Copy> later_;
  Mark landed_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(unsigned multiprocessors, std::size_t bytes) {
  return std::make_unique<EmulatedDevice>(multiprocessors, bytes);
}

}  // namespace baton::testing
