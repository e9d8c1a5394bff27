// The device's copy of a KV arena, or of some of its heads where ranks share a model out: blocks
// come in from the host's memory, and go out to it. Only the heads it has are ever written there,
// so that ranks may publish the same block at the same time.
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
  static Result<std::unique_ptr<ArenaCopy>> create(Device& device,
                                                   const KvArenaView& arena,
                                                   const KvHeads& heads);
  ArenaCopy(const ArenaCopy&) = delete;
  ArenaCopy& operator=(const ArenaCopy&) = delete;
  ~ArenaCopy();

  const KvArenaView& host() const { return host_; }
  const KvHeads& heads() const { return heads_; }
  const KvArenaView& device() const { return device_view_; }  // of those heads, device memory
  bool is_pinned() const { return is_pinned_; }

  void bring(std::span<const BlockId> blocks);
  // What write_kv wrote: see Backend::publish_kv.
  void publish(std::uint32_t layer, std::span<const AttentionSlice> slices, bool all);
  void wait(std::uint32_t layer);

 private:
  // What lies in one piece in a block of both.
  struct Piece {
    std::size_t host_at;
    std::size_t device_at;
    std::size_t bytes;
  };

  ArenaCopy(Device& device,
            const KvArenaView& host,
            const KvHeads& heads,
            const KvArenaView& device_view);
  template <class Copy>
  void for_pieces(std::size_t count, const Copy& copy) const;

  Device& device_;
  const KvArenaView host_;
  const KvHeads heads_;
  const KvArenaView device_view_;
  std::vector<Piece> pieces_;
  const bool is_pinned_;
  std::vector<Device::Mark> marks_;  // a layer, behind its last copies
};

}  // namespace baton::kernels::cuda
