// A device of the cuda backend in the host's memory, whose kernels the emulator runs. Copies and
// launches are over when they return; what is copied out later lands when it is waited for, so that
// who reads too early finds the old bytes.
//
// A recording is a list of launches with the bytes of their arguments. While one is made, all that
// is no launch and no copy on the device ends the process, and so does a replay of a step whose
// launches would have other arguments now.
//
// Thread: one. Failure: as the emulator.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/cuda/device_memory.h"

namespace baton::testing {

// What was asked of a device. Kept by whoever made it, for as long as the device is there.
struct EmulatedCounts {
  std::size_t copies_in = 0;
  std::size_t replays = 0;
  std::size_t recordings = 0;  // there are now
};

struct EmulatedOptions {
  unsigned multiprocessors = 132;  // few or many make the backend cut products differently
  std::size_t bytes = std::size_t{1} << 30;  // of memory
  bool can_record = true;
  EmulatedCounts* counts = nullptr;
};

std::unique_ptr<kernels::cuda::Device> make_emulated_device(const EmulatedOptions& options);
std::unique_ptr<kernels::cuda::Device> make_emulated_device(unsigned multiprocessors = 132,
                                                            std::size_t bytes = std::size_t{1}
                                                                                << 30);

}  // namespace baton::testing
