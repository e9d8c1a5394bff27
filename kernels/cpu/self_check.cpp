#include "kernels/cpu/self_check.h"

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/gguf_blocks.h"

namespace baton::kernels::cpu {
namespace {

constexpr std::size_t kRows = 23;  // tiles of two sizes
constexpr std::size_t kCols = 512;
constexpr std::size_t kFeatures = 48;  // and a panel of one group

// Any codes; the block's scale, at `scale_at`, is 1/1024.
CpuMatrix make_weight(DType dtype, std::size_t scale_at, std::mt19937& rng) {
  constexpr std::uint16_t kScale = 0x1400;
  std::vector<std::byte> bytes(kFeatures * row_bytes(dtype, kCols));
  for (std::byte& b : bytes) {
    b = static_cast<std::byte>(rng());
  }
  for (std::size_t at = 0; at < bytes.size(); at += info(dtype).block_bytes) {
    std::memcpy(bytes.data() + at + scale_at, &kScale, sizeof(kScale));
  }
  const std::size_t panels = (kFeatures + kPanelRows - 1) / kPanelRows;
  const std::shared_ptr<std::byte[]> memory(
      new std::byte[panels * CpuMatrix::panel_bytes(dtype, kCols)]());
  CpuMatrix weight(dtype, kFeatures, kCols, {memory, memory.get()});
  for (std::size_t panel = 0; panel < panels; ++panel) {
    weight.pack_panel({dtype, kFeatures, kCols, bytes}, panel);
  }
  return weight;
}

std::vector<float> multiply(const KernelTable& kernels, const CpuMatrix& w, const float* x) {
  Scratch<std::uint32_t> activations;
  Scratch<std::byte> scratch;
  std::vector<float> y(kRows * kFeatures);
  const RowTiles tiles = make_row_tiles(kRows, kernels.quant_row_tile);
  MatmulJob job{};
  job.dtype = w.dtype();
  job.weight = w.data();
  job.panel_bytes = w.panel_bytes();
  job.rows = kFeatures;
  job.cols = kCols;
  job.end_panel = w.panels();
  job.tiles = tiles;
  job.end_tile = tiles.count;
  job.y = y.data();
  job.y_stride = kFeatures;
  job.scratch = scratch.at_least(matmul_scratch_bytes(kCols));
  std::uint32_t* quantised = activations.at_least(kRows * kCols / kQuantBlock * kActivationWords);
  kernels.quantise({x, kCols, tiles, 0, tiles.count, quantised});
  job.activations = quantised;
  kernels.matmul(job);
  return y;
}

}  // namespace

bool equal_products(const KernelTable& a, const KernelTable& b) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> value(-2.0F, 2.0F);
  std::vector<float> x(kRows * kCols);
  for (float& v : x) {
    v = value(rng);
  }
  // One type with a scale for 32 elements and one with a scale for 16.
  for (const CpuMatrix& weight :
       {make_weight(DType::Q8_0, 0, rng), make_weight(DType::Q6_K, 208, rng)}) {
    const std::vector<float> left = multiply(a, weight, x.data());
    const std::vector<float> right = multiply(b, weight, x.data());
    if (std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace baton::kernels::cpu
