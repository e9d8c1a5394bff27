#include "kernels/cuda/arena_copy.h"

#include <algorithm>
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

Result<std::unique_ptr<ArenaCopy>> ArenaCopy::create(Device& device,
                                                     const KvArenaView& arena,
                                                     const KvHeads& heads) {
  KvArenaView view = arena;
  view.layout.kv_heads = heads.count;
  auto memory = device.allocate(std::max<std::size_t>(1, view.bytes()));
  if (!memory) {
    return fail(
        memory.error().code,
        "the device's copy of the KV arena: " + memory.error().message + "; lower kv.arena_mb");
  }
  view.base = *memory;
  return std::unique_ptr<ArenaCopy>(new ArenaCopy(device, arena, heads, view));
}

ArenaCopy::ArenaCopy(Device& device,
                     const KvArenaView& host,
                     const KvHeads& heads,
                     const KvArenaView& device_view)
    : device_(device),
      host_(host),
      heads_(heads),
      device_view_(device_view),
      is_pinned_(device.pin(host.base, host.bytes())),
      marks_(host.layout.layers) {
  const KvLayout& from = host.layout;
  const KvLayout& to = device_view_.layout;
  if (from == to) {
    pieces_.push_back({0, 0, from.block_bytes()});
    return;
  }
  const std::size_t head = from.scales_at() / 2 / from.kv_heads;  // of keys, or values
  const std::size_t scales = from.block_tokens * from.scale_bytes();
  for (const std::size_t half : {0U, 1U}) {  // keys, values
    pieces_.push_back({half * from.scales_at() / 2 + heads.first * head,
                       half * to.scales_at() / 2,
                       heads.count * head});
    pieces_.push_back({from.scales_at() + (half * from.kv_heads + heads.first) * scales,
                       to.scales_at() + half * to.kv_heads * scales,
                       heads.count * scales});
  }
  std::erase_if(pieces_, [](const Piece& piece) { return piece.bytes == 0; });
}

ArenaCopy::~ArenaCopy() {
  device_.release(device_view_.base);
  device_.unpin(host_.base);
}

// Calls `copy(piece, bytes, count)` for what `count` neighbouring blocks consist of.
template <class Copy>
void ArenaCopy::for_pieces(std::size_t count, const Copy& copy) const {
  for (const Piece& piece : pieces_) {
    if (piece.bytes == host_.layout.block_bytes()) {
      copy(piece, count * piece.bytes, 1);  // the run is one piece
    } else {
      copy(piece, piece.bytes, count);
    }
  }
}

void ArenaCopy::bring(std::span<const BlockId> blocks) {
  const std::size_t host_stride = host_.layout.block_bytes();
  const std::size_t device_stride = device_view_.layout.block_bytes();
  for_runs(blocks, [&](BlockId first, std::size_t run) {
    for (std::uint32_t layer = 0; layer < host_.layout.layers; ++layer) {
      for_pieces(run, [&](const Piece& piece, std::size_t bytes, std::size_t count) {
        device_.copy_in_pinned(device_view_.block(layer, first) + piece.device_at,
                               host_.block(layer, first) + piece.host_at,
                               {bytes, count, device_stride, host_stride});
      });
    }
  });
}

void ArenaCopy::publish(std::uint32_t layer, std::span<const AttentionSlice> slices, bool all) {
  const std::size_t tokens = host_.layout.block_tokens;
  const std::size_t host_stride = host_.layout.block_bytes();
  const std::size_t device_stride = device_view_.layout.block_bytes();
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
             [&](BlockId first, std::size_t run) {
               for_pieces(run, [&](const Piece& piece, std::size_t bytes, std::size_t count) {
                 device_.copy_out_later(host_.block(layer, first) + piece.host_at,
                                        device_view_.block(layer, first) + piece.device_at,
                                        {bytes, count, host_stride, device_stride});
               });
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
