#include "kernels/cuda/arena_copy.h"

#include <string>
#include <utility>

namespace baton::kernels::cuda {
namespace {

// Calls `each(first, count)` for runs of neighbouring blocks, in the order given.
template <class Each>
void for_runs(std::span<const BlockId> blocks, const Each& each) {
  for (std::size_t i = 0; i < blocks.size();) {
    std::size_t count = 1;
    while (i + count < blocks.size() && blocks[i + count].value == blocks[i].value + count) {
      ++count;
    }
    each(blocks[i], count);
    i += count;
  }
}

}  // namespace

Result<std::unique_ptr<ArenaCopy>> ArenaCopy::create(Device& device, const KvArenaView& arena) {
  auto memory = device.allocate(arena.bytes());
  if (!memory) {
    return fail(
        memory.error().code,
        "the device's copy of the KV arena: " + memory.error().message + "; lower kv.arena_mb");
  }
  return std::unique_ptr<ArenaCopy>(new ArenaCopy(device, arena, *memory));
}

ArenaCopy::ArenaCopy(Device& device, const KvArenaView& host, std::byte* memory)
    : device_(device), host_(host), device_view_(host), marks_(host.layout.layers) {
  device_view_.base = memory;
  device.pin(host.base, host.bytes());
}

ArenaCopy::~ArenaCopy() {
  device_.release(device_view_.base);
  device_.unpin(host_.base);
}

void ArenaCopy::bring(std::span<const BlockId> blocks) {
  for_runs(blocks, [&](BlockId first, std::size_t count) {
    for (std::uint32_t layer = 0; layer < host_.layout.layers; ++layer) {
      device_.copy_in_pinned(device_view_.block(layer, first),
                             host_.block(layer, first),
                             count * host_.layout.block_bytes());
    }
  });
}

void ArenaCopy::publish(std::uint32_t layer, std::span<const AttentionSlice> slices, bool all) {
  const std::size_t tokens = host_.layout.block_tokens;
  bool is_any = false;
  for (const AttentionSlice& slice : slices) {
    const std::size_t end = slice.first_position + slice.num_rows;
    const std::size_t first_block = slice.first_position / tokens;
    const std::size_t end_block = all ? (end + tokens - 1) / tokens : end / tokens;
    if (first_block >= end_block) {
      continue;
    }
    if (!is_any) {
      device_.follow();
      is_any = true;
    }
    for_runs(slice.blocks.subspan(first_block, end_block - first_block),
             [&](BlockId first, std::size_t count) {
               device_.copy_out_later(host_.block(layer, first),
                                      device_view_.block(layer, first),
                                      count * host_.layout.block_bytes());
             });
  }
  if (is_any) {
    marks_[layer] = device_.mark();
  }
}

void ArenaCopy::wait(std::uint32_t layer) {
  device_.wait(marks_[layer]);
}

}  // namespace baton::kernels::cuda
