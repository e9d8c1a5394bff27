#include "tests/unit/transfer/arena.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace baton::testing {
namespace {

constexpr std::byte kCanary{0xc5};

void pattern(std::uint64_t salt, std::uint32_t layer, BlockId block, std::span<std::byte> out) {
  std::uint64_t state = (salt + 1) * 0x9e3779b97f4a7c15ULL ^ (std::uint64_t{layer} << 40) ^
                        (std::uint64_t{block.value} << 8);
  for (std::size_t at = 0; at < out.size(); at += sizeof(state)) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(out.data() + at, &state, std::min(sizeof(state), out.size() - at));
  }
}

}  // namespace

KvLayout small_layout(std::uint32_t layers, std::uint32_t head_dim) {
  KvLayout layout;
  layout.layers = layers;
  layout.kv_heads = 1;
  layout.head_dim = head_dim;
  layout.block_tokens = 32;
  return layout;
}

void TestArena::Free::operator()(std::byte* bytes) const {
  std::free(bytes);
}

TestArena::TestArena(const KvLayout& layout, std::uint32_t num_blocks) {
  view_.layout = layout;
  view_.num_blocks = num_blocks;
  total_ = (view_.bytes() + 2 * kCanaryBytes + 4095) / 4096 * 4096;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, total_)));
  std::fill_n(memory_.get(), total_, kCanary);
  view_.base = memory_.get() + kCanaryBytes;
  fill_byte(std::byte{0});
}

void TestArena::fill(std::uint64_t salt) {
  for (std::uint32_t layer = 0; layer < view_.layout.layers; ++layer) {
    for (std::uint32_t i = 0; i < view_.num_blocks; ++i) {
      pattern(
          salt, layer, BlockId{i}, {view_.block(layer, BlockId{i}), view_.layout.block_bytes()});
    }
  }
}

void TestArena::fill_byte(std::byte value) {
  std::fill_n(view_.base, view_.bytes(), value);
}

bool TestArena::holds(std::uint32_t layer,
                      BlockId block,
                      std::uint64_t salt,
                      BlockId source) const {
  std::vector<std::byte> want(view_.layout.block_bytes());
  pattern(salt, layer, source, want);
  return std::equal(want.begin(), want.end(), view_.block(layer, block));
}

bool TestArena::is_filled_with(std::uint32_t layer, BlockId block, std::byte value) const {
  const std::byte* at = view_.block(layer, block);
  return std::all_of(at, at + view_.layout.block_bytes(), [&](std::byte b) { return b == value; });
}

bool TestArena::canaries_intact() const {
  const std::byte* end = view_.base + view_.bytes();
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  return std::all_of(memory_.get(), memory_.get() + kCanaryBytes, is_canary) &&
         std::all_of(end, static_cast<const std::byte*>(memory_.get()) + total_, is_canary);
}

}  // namespace baton::testing
