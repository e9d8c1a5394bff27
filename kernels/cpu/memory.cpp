#include "kernels/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "kernels/cpu/numa.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSlab = std::size_t{32} << 20;

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

Result<std::shared_ptr<std::byte>> WeightMemory::take(std::size_t bytes) {
  bytes = round_up(bytes, 64);
  if (slab_ == nullptr || size_ - used_ < bytes) {
    // Mapped with room for one huge page more, to begin on a huge page's boundary.
    const std::size_t size = std::max(kSlab, round_up(bytes, kHugePage));
    const std::size_t mapped = size + kHugePage;
    void* place = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) {
      return fail(ErrorCode::OutOfMemory,
                  fmt::format("no memory for {} MiB of packed weights", size >> 20));
    }
    void* aligned = place;
    std::size_t space = mapped;
    std::align(kHugePage, size, aligned, space);
    // Without huge pages, or on one node, the weights are only slower to stream.
    (void)spread_over_nodes(place, mapped, nodes_);
    (void)madvise(aligned, size, MADV_HUGEPAGE);
    slab_ = std::shared_ptr<std::byte>(static_cast<std::byte*>(aligned),
                                       [place, mapped](std::byte*) { munmap(place, mapped); });
    size_ = size;
    used_ = 0;
  }
  std::shared_ptr<std::byte> piece(slab_, slab_.get() + used_);
  used_ += bytes;
  return piece;
}

}  // namespace baton::kernels::cpu
