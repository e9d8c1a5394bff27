#include "tests/support/emulated_device.h"

#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "tests/support/emulated_launches.h"

namespace baton::testing {
namespace {

using kernels::cuda::CopyShape;
using kernels::cuda::Device;
using kernels::cuda::HostLaunch;
using kernels::cuda::LaunchShape;
using kernels::cuda::Stream;

struct Launches final : Device::Recording {
  explicit Launches(EmulatedCounts* kept_in) : counts(kept_in) { count(1); }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;
  ~Launches() override { count(-1); }
  void count(int change) const {
    if (counts != nullptr) {
      counts->recordings += static_cast<std::size_t>(change);
    }
  }

  std::vector<HostLaunch> launches;
  EmulatedCounts* const counts;
};

bool are_equal(const LaunchShape& a, const LaunchShape& b) {
  return a.x == b.x && a.y == b.y && a.z == b.z && a.threads == b.threads &&
         a.dynamic_shared == b.dynamic_shared;
}

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(const EmulatedOptions& options)
      : options_(options), left_(options.bytes) {}
  ~EmulatedDevice() override {
    BATON_CHECK(memory_.empty(), "device memory that nobody gave back");
  }

  std::string description() const override { return "emulated"; }
  std::uint32_t compute_capability() const override { return 0; }
  unsigned multiprocessors() const override { return options_.multiprocessors; }
  Stream stream() const override { return {kept_ == nullptr ? nullptr : &kept_->launches}; }

  Result<std::byte*> allocate(std::size_t bytes) override {
    expect_no_recording("memory is asked for");
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
    ++releases_;
    const auto piece = memory_.find(memory);
    BATON_CHECK(piece != memory_.end(), "memory that is not the device's is given back");
    left_ += piece->second.bytes;
    memory_.erase(piece);
  }
  bool pin(std::byte*, std::size_t) override { return true; }
  void unpin(std::byte*) override {}

  void copy_in(std::byte* to, const void* from, std::size_t bytes) override {
    expect_no_recording("something is copied from the host");
    expect_own(to, bytes);
    std::memcpy(to, from, bytes);
    count(&EmulatedCounts::copies_in);
  }
  void copy_in_pinned(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    expect_no_recording("something is copied from the host");
    for (std::size_t i = 0; i < shape.count; ++i) {
      expect_own(to + i * shape.to_stride, shape.bytes);
      std::memcpy(to + i * shape.to_stride, from + i * shape.from_stride, shape.bytes);
    }
  }
  void copy_inside(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    for (std::size_t i = 0; i < shape.count; ++i) {
      expect_own(from + i * shape.from_stride, shape.bytes);
      expect_own(to + i * shape.to_stride, shape.bytes);
    }
    kernels::cuda::launch(stream(), copy_pieces, {}, CopyArguments{to, from, shape});
  }
  void copy_out(void* to, const std::byte* from, std::size_t bytes) override {
    expect_no_recording("something is copied to the host");
    expect_own(from, bytes);
    std::memcpy(to, from, bytes);
  }
  void follow() override { expect_no_recording("another stream follows"); }
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
  void settle() override {
    expect_no_recording("somebody waits for the device");
    wait(mark());
  }

  void begin_recording() override {
    expect_no_recording("another one begins");
    kept_ = std::make_unique<Launches>(options_.counts);
  }
  Result<std::unique_ptr<Recording>> end_recording() override {
    BATON_CHECK(kept_ != nullptr, "a recording ends that nobody began");
    std::unique_ptr<Recording> kept = std::move(kept_);
    if (!options_.can_record) {
      return fail(ErrorCode::OutOfMemory, "the device keeps no recordings");
    }
    return kept;
  }
  void replay(const Recording& recording) override {
    expect_no_recording("another one is replayed");
    for (const HostLaunch& launch : static_cast<const Launches&>(recording).launches) {
      run_launch(launch);
    }
    count(&EmulatedCounts::replays);
  }
  std::uint64_t releases() const override { return releases_; }
  bool doubts_recordings() const override { return true; }
  void expect_alike(const Recording& kept, const Recording& now) const override {
    const auto& old = static_cast<const Launches&>(kept).launches;
    const auto& fresh = static_cast<const Launches&>(now).launches;
    BATON_CHECK(
        old.size() == fresh.size(),
        fmt::format(
            "a replayed step has {} launches, it would have {} now", old.size(), fresh.size()));
    for (std::size_t i = 0; i < old.size(); ++i) {
      BATON_CHECK(old[i].kernel == fresh[i].kernel && are_equal(old[i].shape, fresh[i].shape),
                  fmt::format("launch {} of a replayed step would be another now", i));
      BATON_CHECK(old[i].arguments == fresh[i].arguments,
                  fmt::format("launch {} of a replayed step has arguments of an older one", i));
    }
  }

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

  // A copy as a launch of one thread of its block.
  struct CopyArguments {
    std::byte* to;
    const std::byte* from;
    CopyShape shape;
  };
  static void copy_pieces(CopyArguments a) {
    if (kernels::cuda::thread_index() == 0) {
      for (std::size_t i = 0; i < a.shape.count; ++i) {
        std::memmove(a.to + i * a.shape.to_stride, a.from + i * a.shape.from_stride, a.shape.bytes);
      }
    }
  }

  void expect_no_recording(const char* what) const {
    BATON_CHECK(kept_ == nullptr, fmt::format("{} while the device records", what));
  }
  void count(std::size_t EmulatedCounts::*what) {
    if (options_.counts != nullptr) {
      ++(options_.counts->*what);
    }
  }
  void expect_own(const std::byte* at, std::size_t bytes) const {
    auto piece = memory_.upper_bound(const_cast<std::byte*>(at));
    BATON_CHECK(piece != memory_.begin(), "a copy outside of the device's memory");
    --piece;
    BATON_CHECK(at + bytes <= piece->first + piece->second.bytes,
                "a copy outside of the device's memory");
  }

  const EmulatedOptions options_;
  std::size_t left_;
  std::map<std::byte*, Piece> memory_;
  std::deque<Copy> later_;
  Mark landed_ = 0;
  std::unique_ptr<Launches> kept_;  // while it records
  std::uint64_t releases_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_emulated_device(const EmulatedOptions& options) {
  return std::make_unique<EmulatedDevice>(options);
}

std::unique_ptr<Device> make_emulated_device(unsigned multiprocessors, std::size_t bytes) {
  return make_emulated_device(EmulatedOptions{.multiprocessors = multiprocessors, .bytes = bytes});
}

}  // namespace baton::testing
