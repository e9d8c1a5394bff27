// The operations a forward pass is made of, behind one interface that each backend implements.
// Inputs and outputs are row-major float32 unless said otherwise; a row is a token.
//
// The rule that makes answers reproducible: a row's result depends on that row and the weights
// alone, never on the number of rows, their order, the chunking, or the number of threads. Every
// reduction has one order, fixed by absolute index: matmul accumulates over K in ascending order
// with one chain an output (integer dot products inside a 32-element block, then one float fma a
// block); attention walks KV blocks in ascending position; sums over a row use 16 lanes and one
// tree. No libm inside kernels.
//
// Activations, norms and biases (float pointers) lie in the backend's memory, `allocate`; spans,
// and what a router chooses, in the host's. A backend whose memory is a device's has only begun an
// operation when its call returns; they run in the order of the calls.
//
// Thread: one caller (the engine thread); the backend spreads work over its own pool.
// Failure: packing may fail (shape, memory); running an op with wrong shapes is our own fault and
// ends the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_layout.h"
#include "kernels/dtype.h"
#include "kernels/sampling_rows.h"

namespace baton::kernels {

// A matrix as a model file holds it: [rows][cols], row after row of `dtype` blocks. Borrowed bytes.
struct WeightView {
  DType dtype = DType::F32;
  std::size_t rows = 0;  // output features (N)
  std::size_t cols = 0;  // input features (K)
  std::span<const std::byte> data;
};

// A weight in the layout a backend streams. Made once at load by `Backend::pack`.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
  virtual std::size_t rows() const = 0;
  virtual std::size_t cols() const = 0;
  virtual std::size_t bytes() const = 0;  // memory it owns
};

// Keeps packed weights from one start to the next. A backend asks for each weight before it packs
// it, and tells of each that it packed, in the order of its `pack` calls.
class PackedStore {
 public:
  virtual ~PackedStore() = default;
  // What the store has for this weight: `bytes` bytes, 64-byte aligned, kernels may read a little
  // past them. Null: nothing.
  virtual std::shared_ptr<const std::byte> find(const WeightView& weight, std::size_t bytes) = 0;
  virtual void add(const WeightView& weight,
                   std::shared_ptr<const std::byte> packed,
                   std::size_t bytes) = 0;
};

// y = x · wᵀ. x: [m][cols], y: [m][rows] with `y_stride` floats from row to row (0: rows).
struct MatmulOut {
  const PackedMatrix* weight = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
  bool accumulate = false;  // y += instead of y =; the addition comes last
};

// How rotary embedding pairs dimensions: (2i, 2i+1), as llama GGUF files are permuted for, or (i, i
// + d/2).
enum class RopeStyle : std::uint8_t { Interleaved, Halves };

// cos and sin for each position: [positions][head_dim / 2] each.
struct RopeTable {
  std::size_t positions = 0;
  std::size_t half_dim = 0;
  std::span<const float> cosines;
  std::span<const float> sines;
};

// Rows of one sequence inside a step's row-major buffers.
struct AttentionSlice {
  std::size_t first_row = 0;         // first row of this sequence in q and out
  std::size_t num_rows = 0;          // its new tokens in this step
  std::uint32_t first_position = 0;  // absolute position of the first of them
  std::span<const BlockId> blocks;  // block table covering positions [0, first_position + num_rows)
};

struct AttentionParams {
  std::uint32_t layer = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t first_kv_head = 0;  // of the arena's: which of them `kv_heads` are
  std::uint32_t head_dim = 0;
  float scale = 1.0F;
  std::uint32_t window = 0;  // sees positions (p - window, p]; 0: all
  float softcap = 0.0F;      // scores = softcap * tanh(scores / softcap); 0: off
};

// Some of an arena's KV heads.
struct KvHeads {
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  bool operator==(const KvHeads&) const = default;
};

// How a router chooses a row's experts.
struct RouteParams {
  std::uint32_t count = 0;  // of experts
  std::uint32_t used = 0;   // by a row
  bool renormalise = false;
};

// How each row of logits is sampled; the rows name parts of the lists.
struct SampleRows {
  std::span<const SampleRow> rows;
  std::span<const TokenBias> biases;
  std::span<const SeenToken> seen;
  std::span<const std::int32_t> barred;
};

struct StepInputs;  // kernels/step.h
struct StepCounts;
class StepRecords;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;    // "reference", "cpu"
  virtual std::string description() const = 0;  // e.g. "cpu avx512-vnni, 2 threads"
  // Equal only where every op gives equal bits: part of the numerics hash.
  virtual std::uint64_t numerics_family() const = 0;

  virtual Result<std::unique_ptr<PackedMatrix>> pack(const WeightView& weight) = 0;
  // Names the bytes that `pack` makes and changes whenever they do: letters, digits, dots. Empty:
  // there is nothing to keep.
  virtual std::string packed_layout() const { return {}; }
  // `pack` asks and tells this store from now on. Borrowed; null: none.
  virtual void use_store(PackedStore* store) { static_cast<void>(store); }

  // Whether its memory is the host's, and an operation over when its call returns.
  virtual bool is_on_host() const { return true; }
  // Floats, 64-byte aligned, not initialised. Throws std::bad_alloc.
  virtual std::shared_ptr<float> allocate(std::size_t count);
  // Waits until all that was begun is over.
  virtual void settle() {}
  // Copies between the host's memory and its own; over when they return.
  virtual void upload(const float* from, std::size_t count, float* to);
  virtual void download(const float* from, std::size_t count, float* to);

  // A KV arena lies in the host's memory, where the data plane fills and reads it; a device keeps a
  // copy of its own, which write_kv and attention use.
  // Says which of its KV heads this backend computes, before the first use, and takes the memory
  // for them. OutOfMemory says what to lower.
  virtual Status adopt_arena(const KvArenaView& arena, const KvHeads& heads);
  // How blocks come to that copy and back, for the log; empty where there is none.
  virtual std::string arena_note(const KvArenaView& arena);
  // What others wrote into these blocks: write_kv and attention find it from now on.
  virtual void bring_blocks(const KvArenaView& arena, std::span<const BlockId> blocks);
  // Brings what write_kv wrote for these slices into the arena: blocks that are full now, and the
  // others as well when `all`. `wait_published`: until that is done for one layer.
  virtual void publish_kv(const KvArenaView& arena,
                          std::uint32_t layer,
                          std::span<const AttentionSlice> slices,
                          bool all);
  virtual void wait_published(std::uint32_t layer);

  // Calls `work`, whose operations are those of one step.
  virtual void run_step(const StepInputs& inputs, const std::function<void()>& work);
  // Null where a backend has nothing to gain by recordings. Not for steps that wait for others, as
  // all_gather does, or for the device, as route does.
  virtual std::unique_ptr<StepRecords> make_step_records();
  virtual StepCounts step_counts() const;

  // Where ranks compute a model together, each on a device of its own: `all` is cut at `borders`,
  // this rank has written its part and gets the others'. All ranks make the same calls.
  virtual void all_gather(std::span<float> all, std::span<const std::size_t> borders);

  // out[i] = scale * row ids[i] of the table. out: [ids][cols]
  virtual void embed(const PackedMatrix& table,
                     std::span<const TokenId> ids,
                     float scale,
                     float* out) = 0;

  // Several products of one input: x is prepared (quantised) once.
  virtual void matmul(const float* x, std::size_t m, std::span<const MatmulOut> outs) = 0;

  // out = x / sqrt(mean(x²) + eps) * weight. x, out: [m][dim], may alias; weight: [dim].
  virtual void rms_norm(const float* x,
                        std::size_t m,
                        std::size_t dim,
                        const float* weight,
                        float eps,
                        float* out) = 0;

  // Rotates in place. x: [m][stride], heads at x + h * head_dim; positions: [m].
  virtual void rope(float* x,
                    std::size_t m,
                    std::size_t stride,
                    std::size_t heads,
                    std::size_t head_dim,
                    std::span<const std::uint32_t> positions,
                    const RopeTable& table,
                    RopeStyle style) = 0;

  // Every row of x becomes `factor` times its product with the Hadamard matrix of
  // hadamard_size(dim), block by block. x: [rows][dim]
  virtual void hadamard(float* x, std::size_t rows, std::size_t dim, float factor) = 0;

  // out = silu(gate) * up. gate, up, out: [m][dim] with row strides; out may alias gate.
  virtual void silu_mul(const float* gate,
                        const float* up,
                        std::size_t m,
                        std::size_t dim,
                        std::size_t stride,
                        float* out) = 0;
  // The same with GELU, tanh form.
  virtual void gelu_mul(const float* gate,
                        const float* up,
                        std::size_t m,
                        std::size_t dim,
                        std::size_t stride,
                        float* out) = 0;

  // Moves these rows, ascending, to the front of x. x: [rows][dim]
  virtual void keep_rows(std::span<const std::uint32_t> rows, float* x, std::size_t dim);
  // Moves rows apart: `stride` floats from one's beginning to the next's. from: [m][width]; to:
  // [m][stride], of which the first `width` columns are written; no alias.
  virtual void spread_rows(
      const float* from, std::size_t m, std::size_t width, std::size_t stride, float* to);
  // x += y. [n]
  virtual void add(float* x, const float* y, std::size_t n) = 0;
  // Every row of x += bias. x: [m][dim]; bias: [dim].
  virtual void add_bias(float* x, std::size_t m, std::size_t dim, const float* bias) = 0;
  // x = cap * tanh(x / cap). [n]
  virtual void softcap(float* x, std::size_t n, float cap) = 0;

  // Chooses a token for each row, where the backend's memory is a device's.
  // logits: [rows][vocab], overwritten; tokens: [rows], in the host's memory,
  // there when it returns. Without masks.
  virtual void sample(float* logits, std::size_t vocab, const SampleRows& rows, TokenId* tokens);

  // Mixture of experts, in three steps around matmuls of an expert's rows each:
  // 1. A row's `used` largest logits, largest first, the lower index first among equals, and their
  //    share of the softmax over all logits, or over those chosen when `renormalise`.
  //    logits: [m][count]; experts, weights: [m][used].
  virtual void route(const float* logits,
                     std::size_t m,
                     const RouteParams& params,
                     std::uint32_t* experts,
                     float* weights) = 0;
  // 2. out[i] = x[rows[i]]. out: [rows][dim], no alias.
  virtual void gather_rows(const float* x,
                           std::size_t dim,
                           std::span<const std::uint32_t> rows,
                           float* out) = 0;
  // 3. out[r] = sum of weights[r][j] * x[rows[r][j]], j ascending. rows, weights: [m][used];
  //    out: [m][dim], no alias.
  virtual void mix_rows(const float* x,
                        std::size_t dim,
                        std::span<const std::uint32_t> rows,
                        const float* weights,
                        std::size_t used,
                        float* out) = 0;

  // Writes keys and values of each slice's new tokens into the arena, rounded to the layout's
  // dtype. k, v: [rows][stride], kv heads at h * head_dim.
  virtual void write_kv(const KvArenaView& arena,
                        const AttentionParams& params,
                        std::span<const AttentionSlice> slices,
                        const float* k,
                        const float* v,
                        std::size_t stride) = 0;

  // Causal paged attention over what write_kv stored, the new tokens included.
  // q: [rows][q_stride], heads at h * head_dim; out: [rows][heads * head_dim].
  virtual void attention(const KvArenaView& arena,
                         const AttentionParams& params,
                         std::span<const AttentionSlice> slices,
                         const float* q,
                         std::size_t q_stride,
                         float* out) = 0;
};

// Plain scalar code, dequantised weights, double accumulation: what the others are checked against.
std::unique_ptr<Backend> make_reference_backend();

enum class CpuIsa : std::uint8_t { Auto, Scalar, Avx2, Avx512, Amx };

// How BF16 weights are multiplied. AmxBf16 and Avx512Bf16 round activations to BF16 too; each is a
// numerics family of its own.
enum class FloatPath : std::uint8_t { Exact, AmxBf16, Avx512Bf16 };
// By its name in a configuration; empty: no such name.
std::optional<FloatPath> float_path_named(std::string_view name);

struct CpuOptions {
  unsigned threads = 0;  // 0: all cores the process may use
  CpuIsa isa = CpuIsa::Auto;
  FloatPath float_path = FloatPath::Exact;
  bool pin_threads = false;
};

// The fast backend. Fails with a sentence when the machine lacks the instruction set asked for.
// All instruction sets give the same bits, on the exact float path.
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options);

struct CudaOptions {
  std::uint32_t device = 0;  // number of the first GPU, as the driver counts
  std::uint32_t ranks = 1;   // that compute a model together, each on a GPU of its own
  bool record_steps = true;  // decode steps are repeated as CUDA graphs
};

// The backends of NVIDIA GPUs, one a rank, from a library beside the program
// (kernels/cuda/plugin.h). Unavailable: a sentence that names what is missing.
using Backends = std::vector<std::unique_ptr<Backend>>;
Result<Backends> make_cuda_backends(const CudaOptions& options);
// Of one rank.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options);

}  // namespace baton::kernels
