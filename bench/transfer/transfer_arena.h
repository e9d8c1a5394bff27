// KV memory of the transfer benchmarks: blocks of one size, touched, so that no page is faulted in
// while something is timed.
//
// Owner: one measurement. Thread: any. Failure: InvalidArgument for a size no layout has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/error.h"
#include "common/types/kv_layout.h"

namespace baton::bench {

class TransferArena {
 public:
  // Blocks of `bytes` bytes: a multiple of 128, and of 131072 above that.
  static Result<std::unique_ptr<TransferArena>> create(std::size_t bytes,
                                                       std::uint32_t blocks,
                                                       std::uint32_t layers = 1);
  ~TransferArena();
  TransferArena(const TransferArena&) = delete;
  TransferArena& operator=(const TransferArena&) = delete;
  const KvArenaView& view() const { return view_; }

 private:
  explicit TransferArena(KvArenaView view) : view_(view) {}
  KvArenaView view_;
};

}  // namespace baton::bench
