// What a backend that computes in the host's memory need not say.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "common/base/check.h"
#include "kernels/step.h"

namespace baton::kernels {

std::optional<FloatPath> float_path_named(std::string_view name) {
  if (name == "exact") {
    return FloatPath::Exact;
  }
  if (name == "amx_bf16") {
    return FloatPath::AmxBf16;
  }
  return name == "avx512_bf16" ? std::optional(FloatPath::Avx512Bf16) : std::nullopt;
}

std::shared_ptr<float> Backend::allocate(std::size_t count) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = (count * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  auto* const data =
      static_cast<float*>(std::aligned_alloc(kAlignment, std::max(bytes, kAlignment)));
  if (data == nullptr) {
    throw std::bad_alloc();
  }
  return {data, [](float* memory) { std::free(memory); }};
}

void Backend::upload(const float* from, std::size_t count, float* to) {
  std::copy_n(from, count, to);
}

void Backend::download(const float* from, std::size_t count, float* to) {
  std::copy_n(from, count, to);
}

Status Backend::adopt_arena(const KvArenaView&, const KvHeads&) {
  return {};
}

std::string Backend::arena_note(const KvArenaView&) {
  return {};
}

void Backend::bring_blocks(const KvArenaView&, std::span<const BlockId>) {}

void Backend::publish_kv(const KvArenaView&, std::uint32_t, std::span<const AttentionSlice>, bool) {
}

void Backend::wait_published(std::uint32_t) {}

void Backend::run_step(const StepInputs&, const std::function<void()>& work) {
  work();
}

std::unique_ptr<StepRecords> Backend::make_step_records() {
  return nullptr;
}

StepCounts Backend::step_counts() const {
  return {};
}

void Backend::all_gather(std::span<float>, std::span<const std::size_t>) {
  BATON_CHECK(false, "ranks in the host's memory exchange through their communicator");
}

void Backend::keep_rows(std::span<const std::uint32_t> rows, float* x, std::size_t dim) {
  for (std::size_t to = 0; to < rows.size(); ++to) {
    if (rows[to] != to) {
      std::memcpy(x + to * dim, x + rows[to] * dim, dim * sizeof(float));
    }
  }
}

void Backend::sample(float*, std::size_t, const SampleRows&, TokenId*) {
  BATON_CHECK(false, "the engine samples what is in the host's memory");
}

void Backend::spread_rows(
    const float* from, std::size_t m, std::size_t width, std::size_t stride, float* to) {
  for (std::size_t row = 0; row < m; ++row) {
    std::copy_n(from + row * width, width, to + row * stride);
  }
}

}  // namespace baton::kernels
