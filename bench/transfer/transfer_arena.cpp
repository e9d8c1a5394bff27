#include "bench/transfer/transfer_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

namespace baton::bench {

Result<std::unique_ptr<TransferArena>> TransferArena::create(std::size_t bytes,
                                                             std::uint32_t blocks,
                                                             std::uint32_t layers) {
  KvArenaView view;
  view.layout.layers = layers;
  view.layout.block_tokens = 32;
  const std::size_t elements = bytes / 128;  // keys and values of 32 tokens, two bytes each
  view.layout.head_dim = static_cast<std::uint32_t>(std::clamp<std::size_t>(elements, 1, 1024));
  view.layout.kv_heads = static_cast<std::uint32_t>(elements / view.layout.head_dim);
  view.num_blocks = blocks;
  if (view.layout.block_bytes() != bytes || blocks == 0 || layers == 0) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} blocks of {} bytes in {} layers: a size is a power of two from 128",
                            blocks,
                            bytes,
                            layers));
  }
  void* memory = ::mmap(nullptr,
                        view.bytes(),
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                        -1,
                        0);
  if (memory == MAP_FAILED) {
    return fail(ErrorCode::OutOfMemory, fmt::format("{} bytes of blocks", view.bytes()));
  }
  view.base = static_cast<std::byte*>(memory);
  return std::unique_ptr<TransferArena>(new TransferArena(view));
}

TransferArena::~TransferArena() {
  ::munmap(view_.base, view_.bytes());
}

}  // namespace baton::bench
