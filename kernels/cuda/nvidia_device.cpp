#include "kernels/cuda/nvidia_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace baton::kernels::cuda {
namespace {

// What the kernels are built for: code of the first generation named here runs on later ones, too.
constexpr std::uint32_t kLeastCapability = 80;
constexpr std::size_t kStageBytes = std::size_t{16} << 20;
constexpr std::size_t kMarks = 64;  // events in use at a time

std::string words(cudaError_t error) {
  return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

cudaError_t copy(std::byte* to,
                 const std::byte* from,
                 const CopyShape& shape,
                 cudaMemcpyKind kind,
                 cudaStream_t stream) {
  return shape.count == 1 ? cudaMemcpyAsync(to, from, shape.bytes, kind, stream)
                          : cudaMemcpy2DAsync(to,
                                              shape.to_stride,
                                              from,
                                              shape.from_stride,
                                              shape.bytes,
                                              shape.count,
                                              kind,
                                              stream);
}

// A CUDA graph, ready to be launched.
class Graph final : public Device::Recording {
 public:
  explicit Graph(cudaGraphExec_t launched) : launched_(launched) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() override { cudaGraphExecDestroy(launched_); }  // one that runs is destroyed behind it

  cudaGraphExec_t launched() const { return launched_; }

 private:
  const cudaGraphExec_t launched_;
};

// The device cannot be trusted behind an error.
void must(cudaError_t error, const char* what) {
  BATON_CHECK(error == cudaSuccess, fmt::format("CUDA failed {}: {}", what, words(error)));
}

class NvidiaDevice final : public Device {
 public:
  NvidiaDevice(std::uint32_t number, const cudaDeviceProp& properties)
      : number_(number), properties_(properties) {
    int priority_low = 0;
    int priority_high = 0;
    use();
    must(cudaDeviceGetStreamPriorityRange(&priority_low, &priority_high), "asking for priorities");
    must(cudaStreamCreateWithPriority(&work_, cudaStreamNonBlocking, priority_low),
         "making a stream");
    must(cudaStreamCreateWithPriority(&copies_, cudaStreamNonBlocking, priority_high),
         "making a stream");
    must(cudaEventCreateWithFlags(&followed_, cudaEventDisableTiming), "making an event");
    for (cudaEvent_t& event : marks_) {
      must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    }
    must(cudaHostAlloc(&stage_, kStageBytes, cudaHostAllocDefault), "pinning host memory");
  }
  ~NvidiaDevice() override {
    use();
    settle();
    cudaFreeHost(stage_);
    for (const cudaEvent_t event : marks_) {
      cudaEventDestroy(event);
    }
    cudaEventDestroy(followed_);
    cudaStreamDestroy(copies_);
    cudaStreamDestroy(work_);
  }

  std::string description() const override {
    return fmt::format("{}, sm_{}, {} GiB",
                       properties_.name,
                       compute_capability(),
                       properties_.totalGlobalMem >> 30U);
  }
  std::uint32_t compute_capability() const override {
    return static_cast<std::uint32_t>(properties_.major * 10 + properties_.minor);
  }
  unsigned multiprocessors() const override {
    return static_cast<unsigned>(properties_.multiProcessorCount);
  }
  Stream stream() const override {
    use();
    return {work_};
  }

  Result<std::byte*> allocate(std::size_t bytes) override {
    expect_no_recording();
    use();
    void* memory = nullptr;
    if (const cudaError_t error = cudaMalloc(&memory, bytes); error != cudaSuccess) {
      cudaGetLastError();  // this one leaves the device as it was
      std::size_t free = 0;
      std::size_t total = 0;
      must(cudaMemGetInfo(&free, &total), "asking for free memory");
      return fail(ErrorCode::OutOfMemory,
                  fmt::format("GPU {} has {} MiB of {} MiB free, {} MiB are needed: {}",
                              number_,
                              free >> 20U,
                              total >> 20U,
                              bytes >> 20U,
                              words(error)));
    }
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override {
    use();
    settle();
    ++releases_;
    must(cudaFree(memory), "giving memory back");
  }
  bool pin(std::byte* memory, std::size_t bytes) override {
    use();
    const cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);
    if (error != cudaSuccess) {
      cudaGetLastError();  // copies wait for each other then
    }
    // Another rank's device may have done it.
    return error == cudaSuccess || error == cudaErrorHostMemoryAlreadyRegistered;
  }
  void unpin(std::byte* memory) override {
    use();
    if (cudaHostUnregister(memory) != cudaSuccess) {
      cudaGetLastError();
    }
  }

  // Through a pinned buffer, so that the caller goes on while the copy waits for its turn.
  void copy_in(std::byte* to, const void* from, std::size_t bytes) override {
    expect_no_recording();
    use();
    const auto* source = static_cast<const std::byte*>(from);
    while (bytes > 0) {
      if (staged_ == kStageBytes) {
        must(cudaStreamSynchronize(work_), "copying to the device");
        staged_ = 0;
      }
      const std::size_t part = std::min(bytes, kStageBytes - staged_);
      auto* const at = static_cast<std::byte*>(stage_) + staged_;
      std::memcpy(at, source, part);
      must(cudaMemcpyAsync(to, at, part, cudaMemcpyHostToDevice, work_), "copying to the device");
      staged_ += part;
      to += part;
      source += part;
      bytes -= part;
    }
  }
  void copy_in_pinned(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    expect_no_recording();
    use();
    must(copy(to, from, shape, cudaMemcpyHostToDevice, work_), "copying to the device");
  }
  void copy_inside(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    use();
    must(copy(to, from, shape, cudaMemcpyDeviceToDevice, work_), "copying on the device");
  }
  void copy_out(void* to, const std::byte* from, std::size_t bytes) override {
    expect_no_recording();
    use();
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, work_),
         "copying from the device");
    must(cudaGetLastError(), "launching");  // of launches that were refused
    must(cudaStreamSynchronize(work_), "computing");
    staged_ = 0;
  }
  void follow() override {
    expect_no_recording();
    use();
    must(cudaEventRecord(followed_, work_), "recording an event");
    must(cudaStreamWaitEvent(copies_, followed_, 0), "ordering streams");
  }
  void copy_out_later(std::byte* to, const std::byte* from, const CopyShape& shape) override {
    use();
    must(copy(to, from, shape, cudaMemcpyDeviceToHost, copies_), "copying from the device");
  }
  Mark mark() override {
    use();
    ++last_mark_;
    // An event that is used again stands for a later place: waiting for it is waiting longer.
    must(cudaEventRecord(marks_[last_mark_ % kMarks], copies_), "recording an event");
    return last_mark_;
  }
  void wait(Mark mark) override {
    if (mark > 0) {
      use();
      must(cudaEventSynchronize(marks_[mark % kMarks]), "copying from the device");
    }
  }
  void settle() override {
    expect_no_recording();
    use();
    must(cudaGetLastError(), "launching");
    must(cudaStreamSynchronize(work_), "computing");
    must(cudaStreamSynchronize(copies_), "copying from the device");
    staged_ = 0;
  }

  // Other threads' devices are free to do what this one may not meanwhile.
  void begin_recording() override {
    expect_no_recording();
    use();
    must(cudaGetLastError(), "launching");
    must(cudaStreamBeginCapture(work_, cudaStreamCaptureModeThreadLocal), "recording a step");
    is_recording_ = true;
  }
  Result<std::unique_ptr<Recording>> end_recording() override {
    use();
    is_recording_ = false;
    cudaGraph_t graph = nullptr;
    must(cudaStreamEndCapture(work_, &graph), "recording a step");
    must(cudaGetLastError(), "launching");
    cudaGraphExec_t launched = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&launched, graph, 0);
    cudaGraphDestroy(graph);
    if (error != cudaSuccess) {
      cudaGetLastError();  // this one leaves the device as it was
      return fail(ErrorCode::OutOfMemory, "no CUDA graph: " + words(error));
    }
    return std::make_unique<Graph>(launched);
  }
  void replay(const Recording& recording) override {
    use();
    must(cudaGraphLaunch(static_cast<const Graph&>(recording).launched(), work_),
         "repeating a step");
  }
  std::uint64_t releases() const override { return releases_; }

 private:
  // A graph would repeat it with what the host had when it was recorded.
  void expect_no_recording() const {
    BATON_CHECK(!is_recording_, "the host takes part in a step that is recorded");
  }
  // The calling thread's device.
  void use() const { must(cudaSetDevice(static_cast<int>(number_)), "choosing the device"); }

  const std::uint32_t number_;
  const cudaDeviceProp properties_;
  cudaStream_t work_ = nullptr;
  cudaStream_t copies_ = nullptr;
  cudaEvent_t followed_ = nullptr;
  std::array<cudaEvent_t, kMarks> marks_{};
  Mark last_mark_ = 0;
  void* stage_ = nullptr;   // [kStageBytes], pinned
  std::size_t staged_ = 0;  // of it, under way
  bool is_recording_ = false;
  std::uint64_t releases_ = 0;
};

}  // namespace

Result<std::unique_ptr<Device>> open_device(std::uint32_t number) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: the driver (of CUDA {}.{}, {}.{} is needed) shows no GPU: {}",
                            driver / 1000,
                            driver % 1000 / 10,
                            CUDART_VERSION / 1000,
                            CUDART_VERSION % 1000 / 10,
                            words(error)));
  }
  if (number >= static_cast<std::uint32_t>(count)) {
    return fail(
        ErrorCode::Unavailable,
        fmt::format(
            "no CUDA: there is no GPU {}: the driver shows {}; see engine.device", number, count));
  }
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, static_cast<int>(number));
      error != cudaSuccess) {
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: GPU {} cannot be asked: {}", number, words(error)));
  }
  if (static_cast<std::uint32_t>(properties.major * 10 + properties.minor) < kLeastCapability) {
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: GPU {} ({}) has compute capability {}.{}; {}.{} is the least",
                            number,
                            properties.name,
                            properties.major,
                            properties.minor,
                            kLeastCapability / 10,
                            kLeastCapability % 10));
  }
  return std::make_unique<NvidiaDevice>(number, properties);
}

}  // namespace baton::kernels::cuda
