// One GPU as the backend uses it: memory, copies, and the order of its work. Tests put the emulated
// device in its place.
//
// Two streams: what is launched and copied in runs on the first, in the order of the calls; what is
// copied out later runs on the second, beside it.
//
// Owner: one backend. Thread: the backend's caller. Failure: allocating gives OutOfMemory; a device
// that fails at work ends the process with CUDA's own words, since nothing on it can be trusted any
// more: the node's requests go on at others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "kernels/cuda/stream.h"

namespace baton::kernels::cuda {

// `count` pieces of `bytes` each, the beginnings of neighbours so far apart.
struct CopyShape {
  std::size_t bytes = 0;
  std::size_t count = 1;
  std::size_t to_stride = 0;
  std::size_t from_stride = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string description() const = 0;           // "NVIDIA H200, sm_90, 139 GiB"
  virtual std::uint32_t compute_capability() const = 0;  // 90 for 9.0
  virtual unsigned multiprocessors() const = 0;
  virtual Stream stream() const = 0;

  // 256-byte aligned, not initialised. OutOfMemory names the bytes there are.
  virtual Result<std::byte*> allocate(std::size_t bytes) = 0;
  // Waits for what is on the streams.
  virtual void release(std::byte* memory) = 0;
  // Makes host memory fit for copies beside the work; false: it could not, and they are slower, not
  // wrong.
  virtual bool pin(std::byte* memory, std::size_t bytes) = 0;
  virtual void unpin(std::byte* memory) = 0;

  // `from` may change when it returns.
  virtual void copy_in(std::byte* to, const void* from, std::size_t bytes) = 0;
  // `from` is pinned and does not change until the stream has come so far.
  virtual void copy_in_pinned(std::byte* to, const std::byte* from, const CopyShape& shape) = 0;
  // From its memory to its memory.
  virtual void copy_inside(std::byte* to, const std::byte* from, const CopyShape& shape) = 0;
  // Over when it returns.
  virtual void copy_out(void* to, const std::byte* from, std::size_t bytes) = 0;
  // Begins once the first stream's work so far is done, which `follow` says; `to` is pinned.
  virtual void follow() = 0;
  virtual void copy_out_later(std::byte* to, const std::byte* from, const CopyShape& shape) = 0;
  // A place on the second stream, and waiting until it has been passed.
  using Mark = std::uint64_t;
  virtual Mark mark() = 0;
  virtual void wait(Mark mark) = 0;
  // Until both streams are empty.
  virtual void settle() = 0;

  // Launches and copies on its memory that are put on the first stream behind `begin_recording` are
  // not done but kept, with the arguments they have, and `replay` does them. Nothing else is asked
  // of the device meanwhile: what came from the host would be old in every replay.
  class Recording {
   public:
    virtual ~Recording() = default;
  };
  virtual void begin_recording() = 0;
  // An error says why the device cannot keep it; the work was not done either.
  virtual Result<std::unique_ptr<Recording>> end_recording() = 0;
  virtual void replay(const Recording& recording) = 0;
  // How often memory was given back: a recording from before may use what is another's now.
  virtual std::uint64_t releases() const = 0;
  // Tests' device: each step that is replayed is recorded once more, and `expect_alike` ends the
  // process where a launch would have other arguments now.
  virtual bool doubts_recordings() const { return false; }
  virtual void expect_alike(const Recording& kept, const Recording& now) const {
    static_cast<void>(kept);
    static_cast<void>(now);
  }
};

}  // namespace baton::kernels::cuda
