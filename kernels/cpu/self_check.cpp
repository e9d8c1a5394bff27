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

constexpr std::size_t kRows = 40;  // many, in tiles of two sizes
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
  const RowTiles tiles = quant_row_tiles(kernels, kRows);
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

// Rows of one sequence over blocks of i16 codes that use all 13 bits.
std::vector<float> attend(const KernelTable& kernels, std::mt19937 rng) {
  constexpr std::uint32_t kDim = 48;
  constexpr std::uint32_t kGroup = 2;
  constexpr std::uint32_t kTokens = 16;
  constexpr std::uint32_t kPositions = 320;  // a chunk, and a part of one
  constexpr std::uint32_t kFirst = kPositions - kRows;
  constexpr std::size_t kBlockBytes = 2 * kTokens * (kDim * sizeof(std::int16_t) + sizeof(float));
  std::vector<std::byte> layer(kPositions / kTokens * kBlockBytes);
  std::vector<std::uint32_t> blocks(kPositions / kTokens);
  std::uniform_int_distribution<int> code(-4095, 4095);
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    blocks[block] = block;
    std::byte* at = layer.data() + block * kBlockBytes;
    for (std::size_t i = 0; i < std::size_t{2} * kTokens * kDim; ++i, at += sizeof(std::int16_t)) {
      const auto value = static_cast<std::int16_t>(code(rng));
      std::memcpy(at, &value, sizeof(value));
    }
    for (std::size_t i = 0; i < std::size_t{2} * kTokens; ++i, at += sizeof(float)) {
      constexpr float kScale = 1.0F / 4096;
      std::memcpy(at, &kScale, sizeof(kScale));
    }
  }
  std::vector<float> q(kRows * kGroup * kDim);
  for (float& v : q) {
    v = static_cast<float>(code(rng)) / 1024;
  }
  std::vector<float> out(q.size());
  Scratch<std::byte> scratch;
  AttentionJob job{};
  job.layer = layer.data();
  job.block_bytes = kBlockBytes;
  job.blocks = blocks.data();
  job.block_tokens = kTokens;
  job.kv_heads = 1;
  job.head_dim = kDim;
  job.code = KvCode::I16;
  job.group = kGroup;
  job.scale = 0.125F;
  job.q = q.data();
  job.q_stride = kGroup * kDim;
  job.out = out.data();
  job.out_stride = kGroup * kDim;
  job.first_position = kFirst;
  job.rows = kRows;
  job.end_position = kPositions;
  job.scratch = scratch.at_least(attention_scratch_bytes(kGroup, kDim));
  kernels.attend_rows(job);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

bool equal_results(const KernelTable& a, const KernelTable& b) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> value(-2.0F, 2.0F);
  std::vector<float> x(kRows * kCols);
  for (float& v : x) {
    v = value(rng);
  }
  // One type with a scale for 32 elements and one with a scale for 16.
  for (const CpuMatrix& weight :
       {make_weight(DType::Q8_0, 0, rng), make_weight(DType::Q6_K, 208, rng)}) {
    if (!same_bits(multiply(a, weight, x.data()), multiply(b, weight, x.data()))) {
      return false;
    }
  }
  return same_bits(attend(a, rng), attend(b, rng));
}

}  // namespace baton::kernels::cpu
