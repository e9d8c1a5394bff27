// The device's copy of a KV arena: blocks come in from the host's memory, and go out to it.
//
// Owner: a backend. Thread: its caller. Failure: as `create` says.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/error.h"
#include "common/types/kv_layout.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

class ArenaCopy {
 public:
  // OutOfMemory names the key to lower.
  static Result<std::unique_ptr<ArenaCopy>> create(Device& device, const KvArenaView& arena);
  ArenaCopy(const ArenaCopy&) = delete;
  ArenaCopy& operator=(const ArenaCopy&) = delete;
  ~ArenaCopy();

  const KvArenaView& host() const { return host_; }
  const KvArenaView& device() const { return device_view_; }  // the same shape, device memory

  void bring(std::span<const BlockId> blocks);
  // What write_kv wrote: see Backend::publish_kv.
  void publish(std::uint32_t layer, std::span<const AttentionSlice> slices, bool all);
  void wait(std::uint32_t layer);

 private:
  ArenaCopy(Device& device, const KvArenaView& host, std::byte* memory);

  Device& device_;
  const KvArenaView host_;
  KvArenaView device_view_;          // the same shape in device memory
  std::vector<Device::Mark> marks_;  // a layer, behind its last copies
};

}  // namespace baton::kernels::cuda
