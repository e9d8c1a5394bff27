// kernels_bench: how fast the kernels are beside what the machine can do. Prints a line a shape:
// time, GB/s of weights and share of the memory roof, Gop/s and share of the arithmetic roof.
//
// Thread: one, and the backend's own. Failure: an unknown option or missing instruction set ends it
// with a sentence.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/engine/roofs.h"
#include "common/base/check.h"
#include "kernels/gguf_blocks.h"
#include "kernels/half.h"
#include "kernels/ops.h"

namespace baton::bench {
namespace {

using kernels::AttentionParams;
using kernels::AttentionSlice;
using kernels::Backend;
using kernels::DType;
using kernels::MatmulOut;
using kernels::PackedMatrix;

struct Shape {
  DType dtype;
  std::size_t rows;
  std::size_t cols;
};

// The distinct matrices of SmolLM2 135M (Q4_1) and Gemma 3 270M (Q4_K_M).
constexpr Shape kShapes[] = {{DType::Q4_1, 576, 576},
                             {DType::Q4_1, 192, 576},
                             {DType::Q4_1, 1536, 576},
                             {DType::Q4_1, 576, 1536},
                             {DType::Q8_0, 49152, 576},
                             {DType::Q5_0, 1024, 640},
                             {DType::Q8_0, 256, 640},
                             {DType::Q5_0, 2048, 640},
                             {DType::Q4_K, 640, 2048},
                             {DType::Q6_K, 640, 2048},
                             {DType::Q5_0, 640, 1024},
                             {DType::Q4_0, 1536, 576},
                             {DType::F16, 1536, 576},
                             {DType::BF16, 1536, 576},
                             {DType::BF16, 576, 1536},
                             {DType::BF16, 192, 576},
                             {DType::F32, 1536, 576}};

std::vector<std::byte> random_bytes(const Shape& shape, std::mt19937& rng) {
  std::vector<std::byte> bytes(shape.rows * kernels::row_bytes(shape.dtype, shape.cols));
  // Codes of any value; every pair of bytes is also a small half, so that scales are harmless.
  const std::uint16_t scale = kernels::float_to_half(0.01F);
  for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    const std::uint16_t word =
        shape.dtype == DType::F32 ? 0x3C00 : static_cast<std::uint16_t>(scale + (rng() & 0xFF));
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  return bytes;
}

// Seconds of the fastest call in about `budget` seconds: what the kernel can do, not what the
// machine was doing besides.
template <class Body>
double seconds(double budget, const Body& body) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto begin = Clock::now();
  body();
  while (times.size() < 3 || std::chrono::duration<double>(Clock::now() - begin).count() < budget) {
    const auto start = Clock::now();
    body();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return *std::min_element(times.begin(), times.end());
}

// One product of `m` rows with each of the weights in turn.
void bench_rows(Backend& backend,
                const Roofs& roofs,
                const Shape& shape,
                std::span<const std::unique_ptr<PackedMatrix>> weights,
                std::size_t m,
                double budget) {
  std::mt19937 rng(1);
  std::vector<float> x(m * shape.cols);
  std::normal_distribution<float> normal;
  std::generate(x.begin(), x.end(), [&] { return normal(rng); });
  std::vector<float> y(m * shape.rows);
  std::size_t next = 0;
  const std::size_t calls = m <= 16 ? weights.size() : 1;
  const double all = seconds(budget, [&] {
    for (std::size_t i = 0; i < calls; ++i) {
      const MatmulOut out{weights[next++ % weights.size()].get(), y.data(), 0, false};
      backend.matmul(x.data(), m, {&out, 1});
    }
  });
  const double taken = all / static_cast<double>(calls);
  const double read = static_cast<double>(weights.front()->bytes()) / taken;
  const double ops = 2.0 * static_cast<double>(m * shape.rows * shape.cols) / taken;
  const double roof = kernels::is_quantised(shape.dtype) ? roofs.int8_ops_per_s
                      : shape.dtype == DType::BF16       ? roofs.bf16_flops_per_s
                                                         : roofs.f32_flops_per_s;
  fmt::print(
      "matmul {:5} n {:6} k {:5} m {:4}  {:9.1f} us  {:6.2f} GB/s {:4.0f} %  {:7.1f} Gop/s {:4.0f} "
      "%\n",
      kernels::info(shape.dtype).name,
      shape.rows,
      shape.cols,
      m,
      taken * 1e6,
      read / 1e9,
      100 * read / roofs.read_bytes_per_s,
      ops / 1e9,
      100 * ops / roof);
}

// Copies of one weight, so that together they are larger than the caches, as a model's layers are.
void bench_matmul(Backend& backend,
                  const Roofs& roofs,
                  const Shape& shape,
                  std::span<const std::size_t> rows,
                  double budget) {
  std::mt19937 rng(1);
  const std::vector<std::byte> bytes = random_bytes(shape, rng);
  const std::size_t copies =
      std::clamp<std::size_t>((std::size_t{64} << 20) / bytes.size(), 1, 256);
  std::vector<std::unique_ptr<PackedMatrix>> weights;
  const double packing = seconds(0, [&] {
    auto packed = backend.pack({shape.dtype, shape.rows, shape.cols, bytes});
    BATON_CHECK(packed, packed.error().message);
    weights.push_back(std::move(*packed));
  });
  while (weights.size() < copies) {
    auto packed = backend.pack({shape.dtype, shape.rows, shape.cols, bytes});
    BATON_CHECK(packed, packed.error().message);
    weights.push_back(std::move(*packed));
  }
  fmt::print("pack   {:5} n {:6} k {:5}         {:9.1f} us  {:6.2f} GB/s\n",
             kernels::info(shape.dtype).name,
             shape.rows,
             shape.cols,
             packing * 1e6,
             static_cast<double>(bytes.size()) / packing / 1e9);
  for (const std::size_t m : rows) {
    bench_rows(backend, roofs, shape, weights, m, budget);
  }
}

struct Heads {
  const char* name;
  std::uint32_t heads;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
};

// `sequences` with `context` positions each, the last `rows` of them new. Products are of 16-bit
// codes, at best half as fast as those of 8-bit ones.
void bench_attention(Backend& backend,
                     const Roofs& roofs,
                     const Heads& heads,
                     KvDType dtype,
                     std::size_t sequences,
                     std::size_t context,
                     std::size_t rows,
                     double budget) {
  const KvLayout layout{1, heads.kv_heads, heads.head_dim, 32, dtype};
  const std::uint32_t each = layout.blocks_for(context);
  const auto blocks = static_cast<std::uint32_t>(each * sequences);
  std::vector<std::byte> memory(blocks * layout.block_bytes());
  const KvArenaView arena{memory.data(), layout, blocks};
  const AttentionParams params{
      .heads = heads.heads, .kv_heads = heads.kv_heads, .head_dim = heads.head_dim, .scale = 0.1F};
  std::vector<BlockId> table(blocks);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    table[i] = BlockId{i};
  }
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  const std::size_t kv_width = std::size_t{heads.kv_heads} * heads.head_dim;
  const std::size_t q_width = std::size_t{heads.heads} * heads.head_dim;
  std::vector<float> kv(context * kv_width);
  std::generate(kv.begin(), kv.end(), [&] { return normal(rng); });
  std::vector<AttentionSlice> slices;
  for (std::size_t s = 0; s < sequences; ++s) {
    const std::span<const BlockId> own = std::span(table).subspan(s * each, each);
    const AttentionSlice all{0, context, 0, own};
    backend.write_kv(arena, params, {&all, 1}, kv.data(), kv.data(), kv_width);
    slices.push_back({s * rows, rows, static_cast<std::uint32_t>(context - rows), own});
  }
  std::vector<float> q(sequences * rows * q_width);
  std::generate(q.begin(), q.end(), [&] { return normal(rng); });
  std::vector<float> out(q.size());
  const double taken = seconds(
      budget, [&] { backend.attention(arena, params, slices, q.data(), q_width, out.data()); });
  const double seen = static_cast<double>(context) - (static_cast<double>(rows) - 1) / 2;
  const double ops = 4.0 * static_cast<double>(sequences * rows * q_width) * seen / taken;
  fmt::print(
      "attention {:7} {:3} seqs {:2} context {:5} rows {:4}  {:9.1f} us  {:6.2f} GB/s {:4.0f} %  "
      "{:7.1f} Gop/s {:4.0f} %\n",
      heads.name,
      to_string(dtype),
      sequences,
      context,
      rows,
      taken * 1e6,
      static_cast<double>(memory.size()) / taken / 1e9,
      100 * static_cast<double>(memory.size()) / taken / roofs.read_bytes_per_s,
      ops / 1e9,
      200 * ops / roofs.int8_ops_per_s);
}

// Operations too small to share out, and the price of sharing: one row as in decoding.
void bench_small(Backend& backend, double budget) {
  std::vector<float> x(4096, 0.5F);
  std::vector<float> out(4096);
  const double norm =
      seconds(budget, [&] { backend.rms_norm(x.data(), 1, 576, x.data(), 1e-5F, out.data()); });
  const double gate =
      seconds(budget, [&] { backend.silu_mul(x.data(), x.data(), 1, 1536, 1536, out.data()); });
  fmt::print("rms_norm 576: {:.2f} us  silu_mul 1536: {:.2f} us\n", norm * 1e6, gate * 1e6);
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  using namespace baton;  // NOLINT(google-build-using-namespace): a program's own main
  CLI::App app("Speed of the kernels beside the machine's roofs");
  unsigned threads = 2;
  std::string isa = "auto";
  std::string float_path = "exact";
  std::string only;
  std::vector<std::size_t> rows = {1, 4, 8, 16, 64, 512};
  double budget = 0.1;
  app.add_option("--threads", threads, "threads of the backend");
  app.add_option("--isa", isa, "auto, scalar, avx2, avx512 or amx")
      ->check(CLI::IsMember({"auto", "scalar", "avx2", "avx512", "amx"}));
  app.add_option("--float-path", float_path, "arithmetic of BF16 weights")
      ->check(CLI::IsMember({"exact", "amx_bf16", "avx512_bf16"}));
  app.add_option("--only", only, "matmul, attention, small or a weight type such as Q4_1");
  app.add_option("--rows", rows, "rows of activations");
  app.add_option("--seconds", budget, "time for each line");
  CLI11_PARSE(app, argc, argv);

  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  kernels::CpuOptions options;
  options.threads = threads;
  options.isa = isa == "scalar"   ? kernels::CpuIsa::Scalar
                : isa == "avx2"   ? kernels::CpuIsa::Avx2
                : isa == "avx512" ? kernels::CpuIsa::Avx512
                : isa == "amx"    ? kernels::CpuIsa::Amx
                                  : kernels::CpuIsa::Auto;
  options.float_path = *kernels::float_path_named(float_path);
  const auto backend = kernels::make_cpu_backend(options);
  if (!backend) {
    fmt::print(stderr, "kernels_bench: {}\n", backend.error().message);
    return 1;
  }
  bench::Roofs roofs = bench::measure_roofs(threads);
  if (options.float_path == kernels::FloatPath::Exact || roofs.bf16_flops_per_s == 0) {
    roofs.bf16_flops_per_s = roofs.f32_flops_per_s;  // what BF16 weights are computed by
  }
  fmt::print("{}; roofs: {:.1f} GB/s read, {:.0f} Gop/s {}, {:.0f} Gflop/s f32, {:.0f} BF16\n",
             (*backend)->description(),
             roofs.read_bytes_per_s / 1e9,
             roofs.int8_ops_per_s / 1e9,
             roofs.int8_instruction,
             roofs.f32_flops_per_s / 1e9,
             roofs.bf16_flops_per_s / 1e9);
  for (const bench::Shape& shape : bench::kShapes) {
    if (only.empty() || only == "matmul" || only == kernels::info(shape.dtype).name) {
      bench::bench_matmul(**backend, roofs, shape, rows, budget);
    }
  }
  if (only.empty() || only == "attention") {
    for (const bench::Heads& heads :
         {bench::Heads{"SmolLM2", 9, 3, 64}, bench::Heads{"Gemma", 4, 1, 256}}) {
      for (const KvDType dtype : {KvDType::I16, KvDType::F16, KvDType::I8, KvDType::F8}) {
        for (const std::size_t context : {512, 2048, 4096}) {
          bench::bench_attention(**backend, roofs, heads, dtype, 1, context, 1, budget);
          bench::bench_attention(**backend, roofs, heads, dtype, 8, context, 1, budget);
          bench::bench_attention(**backend, roofs, heads, dtype, 1, context, 512, budget);
        }
      }
    }
  }
  if (only.empty() || only == "small") {
    bench::bench_small(**backend, budget);
  }
  return 0;
}
