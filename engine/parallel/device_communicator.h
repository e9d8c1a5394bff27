// The communicator of a rank whose memory is a device's: parts go from device to device, and the
// host's communicator keeps the ranks' threads together.
//
// Owner: the team that runs the ranks. Thread: as Communicator. `all_gather` has only begun when it
// returns, as every operation of such a backend. Failure: as the backend's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/parallel/communicator.h"
#include "kernels/ops.h"

namespace baton::engine {

class DeviceCommunicator final : public Communicator {
 public:
  // Both outlive it.
  DeviceCommunicator(Communicator& host, kernels::Backend& backend)
      : host_(host), backend_(backend) {}

  std::uint32_t rank() const override { return host_.rank(); }
  std::uint32_t size() const override { return host_.size(); }
  void barrier() override { host_.barrier(); }
  void all_gather(std::span<float> all, std::span<const std::size_t> borders) override {
    backend_.all_gather(all, borders);
  }

 private:
  Communicator& host_;
  kernels::Backend& backend_;
};

}  // namespace baton::engine
