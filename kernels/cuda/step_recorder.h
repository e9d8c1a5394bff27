// Recordings of one decoder's steps on a device (kernels/step.h): CUDA graphs.
//
// A step goes with rows to the next of 1, 2, 4, …, 64, 128, 192, 256 and with blocks of attention
// to the next power of two (step_image.h). The first step of a shape is run as it is, so that all
// buffers have the sizes it needs; the second is recorded, later ones repeat that. Whenever the
// device's memory is given back anywhere (an arena, weights, a buffer that grows) what was recorded
// before counts no more. At most kMostRecordings are kept, those used last.
//
// Owner: a decoder. Thread: the backend's caller. Failure: a device that cannot keep a recording is
// not asked again: steps run as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/step_image.h"
#include "kernels/step.h"

namespace baton::kernels::cuda {

inline constexpr std::size_t kMostRecordings = 48;
inline constexpr std::size_t kMostRecordedRows = 256;
// A slice of more is no decode step's: its attention would read keys and values too often.
inline constexpr std::size_t kMostSliceRows = 16;

class StepRecorder final : public StepRecords {
 public:
  // All outlive it.
  StepRecorder(Device& device, StepImage& image, StepCounts& counts)
      : device_(device), image_(image), counts_(counts) {}

  std::size_t rows_for(std::span<const AttentionSlice> slices) const override;
  void run(const StepInputs& inputs, const std::function<void()>& work) override;

 private:
  // A shape of steps over one arena.
  struct Entry {
    const std::byte* arena = nullptr;
    std::vector<std::size_t> shape;
    std::uint64_t releases = 0;  // of the device, when it ran last
    std::uint64_t last_use = 0;
    std::unique_ptr<Device::Recording> recording;  // null: its next step is recorded
  };

  Entry* find(const StepInputs& inputs);
  void add(const StepInputs& inputs);
  void repeat(Entry& entry, const std::function<void()>& work);
  std::unique_ptr<Device::Recording> record(const std::function<void()>& work);

  Device& device_;
  StepImage& image_;
  StepCounts& counts_;
  std::vector<Entry> entries_;
  std::uint64_t uses_ = 0;
  bool can_record_ = true;
};

}  // namespace baton::kernels::cuda
