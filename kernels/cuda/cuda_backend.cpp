#include "kernels/cuda/cuda_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/arena_copy.h"
#include "kernels/cuda/arena_pages.h"
#include "kernels/cuda/attention_runner.h"
#include "kernels/cuda/cuda_matrix.h"
#include "kernels/cuda/matmul_launches.h"
#include "kernels/cuda/row_launches.h"
#include "kernels/cuda/sampling_runner.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/step_image.h"
#include "kernels/cuda/step_recorder.h"
#include "kernels/gguf_blocks.h"
#include "kernels/hadamard.h"

namespace baton::kernels::cuda {
namespace {

// Raised whenever any operation's bits change.
constexpr std::uint64_t kKernelRevision = 2;
constexpr std::size_t kPadK = 64;  // K of x's rows beside float weights

std::uint32_t u32(std::size_t value) {
  return static_cast<std::uint32_t>(value);
}

// Memory of a device that goes back to it.
std::shared_ptr<std::byte> owned(Device& device, std::byte* memory) {
  return {memory, [&device](std::byte* bytes) { device.release(bytes); }};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device,
              unsigned threads,
              std::unique_ptr<NcclRank> rank,
              bool record_steps)
      : device_(std::move(device)),
        rank_(std::move(rank)),
        record_steps_(record_steps),
        packers_(threads, false) {}
  ~CudaBackend() override { device_->settle(); }

  std::string_view name() const override { return "cuda"; }
  std::string description() const override { return "cuda " + device_->description(); }
  // Sums inside 16-bit tensor products are the hardware generation's own.
  std::uint64_t numerics_family() const override {
    return 0x4355440000000000ULL | std::uint64_t{device_->compute_capability()} << 16 |  // "CUD"
           kKernelRevision;
  }

  Result<std::unique_ptr<PackedMatrix>> pack(const WeightView& weight) override {
    BATON_TRY(check_weight(weight));
    const std::size_t bytes = packed_places(weight.dtype, weight.rows, weight.cols).bytes;
    BATON_ASSIGN(std::byte* const memory, device_->allocate(bytes));
    std::shared_ptr<std::byte> data = owned(*device_, memory);
    try {
      packed_.resize(bytes);
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::OutOfMemory, "no memory to pack a weight in");
    }
    packers_.for_each(tiles_of(weight.rows),
                      [&](unsigned, std::size_t tile) { pack_tile(weight, tile, packed_); });
    device_->copy_in(memory, packed_.data(), bytes);
    return std::make_unique<CudaMatrix>(weight, bytes, std::move(data));
  }

  bool is_on_host() const override { return false; }
  std::shared_ptr<float> allocate(std::size_t count) override {
    auto memory = device_->allocate(std::max<std::size_t>(1, count) * sizeof(float));
    if (!memory) {
      throw std::bad_alloc();
    }
    const std::shared_ptr<std::byte> data = owned(*device_, *memory);
    return {data, reinterpret_cast<float*>(data.get())};
  }
  void upload(const float* from, std::size_t count, float* to) override {
    device_->copy_in(reinterpret_cast<std::byte*>(to), from, count * sizeof(float));
  }
  void download(const float* from, std::size_t count, float* to) override {
    device_->copy_out(to, reinterpret_cast<const std::byte*>(from), count * sizeof(float));
  }

  Status adopt_arena(const KvArenaView& arena, const KvHeads& heads) override;
  std::string arena_note(const KvArenaView& arena) override;
  void bring_blocks(const KvArenaView& arena, std::span<const BlockId> blocks) override {
    copy_of(arena).bring(blocks);
  }
  void publish_kv(const KvArenaView& arena,
                  std::uint32_t layer,
                  std::span<const AttentionSlice> slices,
                  bool all) override {
    published_ = &copy_of(arena);
    published_->publish(layer, slices, all);
  }
  void wait_published(std::uint32_t layer) override {
    BATON_CHECK(published_ != nullptr, "nothing was published");
    published_->wait(layer);
  }
  void settle() override { device_->settle(); }

  void run_step(const StepInputs& inputs, const std::function<void()>& work) override {
    step_.begin(inputs, Padding::None);
    work();
    step_.end();
  }
  // What the host does for ranks that meet is not the device's to repeat.
  std::unique_ptr<StepRecords> make_step_records() override {
    return record_steps_ && rank_ == nullptr
               ? std::make_unique<StepRecorder>(*device_, step_, step_counts_)
               : nullptr;
  }
  StepCounts step_counts() const override { return step_counts_; }

  void all_gather(std::span<float> all, std::span<const std::size_t> borders) override {
    BATON_CHECK(rank_ != nullptr, "a backend that is alone has nobody to gather from");
    const Status gathered = rank_->all_gather(all, borders, stream());
    BATON_CHECK(gathered, gathered.error().message);
  }

  void embed(const PackedMatrix& table,
             std::span<const TokenId> ids,
             float scale,
             float* out) override;
  void matmul(const float* x, std::size_t m, std::span<const MatmulOut> outs) override;

  void rms_norm(const float* x,
                std::size_t m,
                std::size_t dim,
                const float* weight,
                float eps,
                float* out) override {
    if (m > 0) {
      launch_rms_norm(stream(), {x, weight, out, u32(m), u32(dim), eps});
    }
  }
  void rope(float* x,
            std::size_t m,
            std::size_t stride,
            std::size_t heads,
            std::size_t head_dim,
            std::span<const std::uint32_t> positions,
            const RopeTable& table,
            RopeStyle style) override {
    BATON_CHECK(positions.size() == m && 2 * table.half_dim <= head_dim, "rope shapes differ");
    if (m == 0 || heads == 0) {
      return;
    }
    launch_rope(stream(),
                {.x = x,
                 .stride = stride,
                 .positions = on_device(positions, positions_),
                 .cosines = on_device(table.cosines, cosines_),
                 .sines = on_device(table.sines, sines_),
                 .rows = u32(m),
                 .heads = u32(heads),
                 .head_dim = u32(head_dim),
                 .half_dim = u32(table.half_dim),
                 .interleaved = style == RopeStyle::Interleaved});
  }
  void hadamard(float* x, std::size_t rows, std::size_t dim, float factor) override {
    const std::size_t size = hadamard_size(dim);
    BATON_CHECK(size <= kMostHadamard, "heads too large for the Hadamard matrix");
    if (rows > 0) {
      launch_hadamard(stream(), {x, u32(rows * dim / size), u32(size), factor});
    }
  }
  void silu_mul(const float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim,
                std::size_t stride,
                float* out) override {
    launch_silu_mul(stream(), m, {gate, up, out, stride, u32(dim)});
  }
  void gelu_mul(const float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim,
                std::size_t stride,
                float* out) override {
    launch_gelu_mul(stream(), m, {gate, up, out, stride, u32(dim)});
  }
  void keep_rows(std::span<const std::uint32_t> rows, float* x, std::size_t dim) override {
    if (!rows.empty() && dim > 0) {  // a rank may have no heads
      launch_keep_rows(stream(), {x, on_device(rows, positions_), u32(rows.size()), u32(dim)});
    }
  }
  void spread_rows(
      const float* from, std::size_t m, std::size_t width, std::size_t stride, float* to) override {
    if (m > 0 && width > 0) {
      device_->copy_inside(
          reinterpret_cast<std::byte*>(to),
          reinterpret_cast<const std::byte*>(from),
          {width * sizeof(float), m, stride * sizeof(float), width * sizeof(float)});
    }
  }
  void add(float* x, const float* y, std::size_t n) override {
    if (n > 0) {
      launch_add(stream(), 1, {x, y, n, u32(n)});
    }
  }
  void add_bias(float* x, std::size_t m, std::size_t dim, const float* bias) override {
    launch_add(stream(), m, {x, bias, 0, u32(dim)});
  }
  void softcap(float* x, std::size_t n, float cap) override {
    if (n > 0) {
      launch_softcap(stream(), 1, {x, u32(n), cap});
    }
  }

  void sample(float* logits, std::size_t vocab, const SampleRows& rows, TokenId* tokens) override {
    sampling_.run(logits, vocab, rows, tokens);
  }
  void route(const float* logits,
             std::size_t m,
             const RouteParams& params,
             std::uint32_t* experts,
             float* weights) override;
  void gather_rows(const float* x,
                   std::size_t dim,
                   std::span<const std::uint32_t> rows,
                   float* out) override {
    launch_mix_rows(stream(),
                    rows.size(),
                    {.x = x,
                     .rows = on_device(rows, positions_),
                     .weights = nullptr,
                     .out = out,
                     .used = 1,
                     .dim = u32(dim)});
  }
  void mix_rows(const float* x,
                std::size_t dim,
                std::span<const std::uint32_t> rows,
                const float* weights,
                std::size_t used,
                float* out) override {
    launch_mix_rows(stream(),
                    rows.size() / used,
                    {.x = x,
                     .rows = on_device(rows, positions_),
                     .weights = on_device(std::span(weights, rows.size()), cosines_),
                     .out = out,
                     .used = u32(used),
                     .dim = u32(dim)});
  }

  void write_kv(const KvArenaView& arena,
                const AttentionParams& params,
                std::span<const AttentionSlice> slices,
                const float* k,
                const float* v,
                std::size_t stride) override;
  void attention(const KvArenaView& arena,
                 const AttentionParams& params,
                 std::span<const AttentionSlice> slices,
                 const float* q,
                 std::size_t q_stride,
                 float* out) override;

 private:
  Stream stream() const { return device_->stream(); }
  ArenaCopy& copy_of(const KvArenaView& arena);
  // A layer of the step at hand.
  KvPages pages(const KvArenaView& arena, std::uint32_t layer) {
    return pages_of(copy_of(arena).device(), layer, step_.tables());
  }
  // What is not the step's is copied in now.
  template <class T>
  const T* on_device(std::span<const T> values, Scratch<T>& scratch) {
    const T* const known = step_.find(values);
    return known != nullptr ? known : scratch.filled(values.data(), values.size());
  }
  void multiply_quant(const CudaMatrix& w, const QuantRows& x, MatmulTarget out);
  void multiply_floats(const CudaMatrix& w, const SplitRows& x, MatmulTarget out);
  void choose_parts(MatmulTarget& out, std::size_t rows, std::size_t cols);
  QuantRows quantised(const float* x, std::size_t m, std::size_t cols);
  SplitRows split(FloatFormat format, const float* x, std::size_t m, std::size_t cols);

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<NcclRank> rank_;  // null: alone
  const bool record_steps_;
  cpu::ThreadPool packers_;
  std::vector<std::byte> packed_;  // of the weight at hand
  std::map<const std::byte*, std::unique_ptr<ArenaCopy>> arenas_;
  ArenaCopy* published_ = nullptr;  // of the step at hand

  // What operations take from the host, and rows prepared for products.
  Scratch<std::uint32_t> positions_{*device_};
  Scratch<TokenId> ids_{*device_};
  Scratch<float> cosines_{*device_};
  Scratch<float> sines_{*device_};
  Scratch<std::uint32_t> codes_{*device_};
  Scratch<float> code_scales_{*device_};
  Scratch<float> code_sums_{*device_};
  Scratch<std::uint16_t> high_{*device_};
  Scratch<std::uint16_t> low_{*device_};
  Scratch<float> split_scales_{*device_};
  Scratch<float> parts_{*device_};
  Scratch<std::uint32_t> experts_{*device_};
  Scratch<float> expert_weights_{*device_};
  AttentionRunner attention_{*device_};
  SamplingRunner sampling_{*device_};
  StepImage step_{*device_};
  StepCounts step_counts_;
};

// One copy an arena; arenas are few and stay as long as the backend.
Status CudaBackend::adopt_arena(const KvArenaView& arena, const KvHeads& heads) {
  std::unique_ptr<ArenaCopy>& copy = arenas_[arena.base];
  if (copy == nullptr || copy->host().layout != arena.layout ||
      copy->host().num_blocks != arena.num_blocks || copy->heads() != heads) {
    copy.reset();
    BATON_ASSIGN(copy, ArenaCopy::create(*device_, arena, heads));
  }
  return {};
}

ArenaCopy& CudaBackend::copy_of(const KvArenaView& arena) {
  const auto copy = arenas_.find(arena.base);
  BATON_CHECK(copy != arenas_.end(), "an arena that was not adopted");
  return *copy->second;
}

std::string CudaBackend::arena_note(const KvArenaView& arena) {
  return copy_of(arena).is_pinned()
             ? "blocks go between the GPU and the network through the arena in pinned host memory"
             : "blocks go between the GPU and the network through the arena in host memory, which "
               "could not be pinned, so that copies are slow: raise the limit of locked memory "
               "(ulimit -l)";
}

void CudaBackend::embed(const PackedMatrix& table,
                        std::span<const TokenId> ids,
                        float scale,
                        float* out) {
  const CudaMatrix& w = own(&table);
  for (const TokenId id : ids) {
    BATON_CHECK(id >= 0 && static_cast<std::size_t>(id) < w.rows(), "token id out of range");
  }
  const TokenId* const device_ids = on_device(ids, ids_);
  const unsigned count = u32(ids.size());
  if (w.dtype() == DType::F32) {
    launch_read_plain_rows(stream(), count, {w.plain(), device_ids, u32(w.cols()), scale, out});
  } else {
    launch_read_rows(stream(), w.dtype(), count, {w.quant(), w.floats(), device_ids, scale, out});
  }
}

QuantRows CudaBackend::quantised(const float* x, std::size_t m, std::size_t cols) {
  const std::size_t groups = m * cols / kGroup;
  const QuantiseArgs args{x,
                          u32(groups),
                          codes_.at_least(m * cols / 4),
                          code_scales_.at_least(groups),
                          code_sums_.at_least(groups)};
  launch_quantise(stream(), args);
  return {args.codes, args.scales, args.sums};
}

SplitRows CudaBackend::split(FloatFormat format, const float* x, std::size_t m, std::size_t cols) {
  const std::size_t padded = (cols + kPadK - 1) / kPadK * kPadK;
  const SplitArgs args{x,
                       u32(cols),
                       u32(padded),
                       high_.at_least(m * padded),
                       low_.at_least(m * padded),
                       split_scales_.at_least(m)};
  launch_split(stream(), format, u32(m), args);
  return {args.high, args.low, args.scales};
}

// Few blocks leave most of the device idle: then each part of K has blocks of its own. The bits do
// not depend on it.
void CudaBackend::choose_parts(MatmulTarget& out, std::size_t rows, std::size_t cols) {
  const std::size_t blocks = ((rows + 63) / 64) * ((out.m + kBlockTokens - 1) / kBlockTokens);
  const unsigned parts = parts_of(u32(cols));
  if (parts > 1 && blocks < std::size_t{2} * device_->multiprocessors()) {
    out.parts = parts_.at_least(parts * out.m * rows);
  }
}

void CudaBackend::matmul(const float* x, std::size_t m, std::span<const MatmulOut> outs) {
  if (m == 0 || outs.empty()) {
    return;
  }
  const std::size_t cols = outs.front().weight->cols();
  // x is prepared once for all weights of a kind.
  QuantRows codes;
  SplitRows halves[2];
  for (const MatmulOut& out : outs) {
    const CudaMatrix& w = own(out.weight);
    BATON_CHECK(w.cols() == cols, "products of one input have one width");
    MatmulTarget target{.y = out.y,
                        .stride = out.y_stride == 0 ? w.rows() : out.y_stride,
                        .parts = nullptr,
                        .m = u32(m),
                        .accumulate = out.accumulate};
    if (w.dtype() == DType::F32) {
      launch_plain_matmul(stream(), {w.plain(), x, u32(w.rows()), u32(cols), target});
      continue;
    }
    choose_parts(target, w.rows(), cols);
    if (is_quantised(w.dtype())) {
      if (codes.codes == nullptr) {
        codes = quantised(x, m, cols);
      }
      launch_quant_matmul(stream(), w.dtype(), {w.quant(), codes, target});
      continue;
    }
    const bool is_half = w.dtype() == DType::F16;
    const FloatFormat format = is_half ? FloatFormat::Half : FloatFormat::Bfloat;
    // Both kinds share one place: the kind of the weight before may be the other.
    SplitRows& rows = halves[is_half ? 0 : 1];
    if (rows.high == nullptr) {
      halves[is_half ? 1 : 0] = {};
      rows = split(format, x, m, cols);
    }
    launch_float_matmul(
        stream(), format, {w.floats(), rows, u32((cols + kPadK - 1) / kPadK * kPadK), target});
  }
}

void CudaBackend::route(const float* logits,
                        std::size_t m,
                        const RouteParams& params,
                        std::uint32_t* experts,
                        float* weights) {
  BATON_CHECK(params.used >= 1 && params.used <= params.count, "more experts used than there are");
  const std::size_t size = m * params.used;
  const RouteArgs args{.logits = logits,
                       .experts = experts_.at_least(size),
                       .weights = expert_weights_.at_least(size),
                       .rows = u32(m),
                       .count = params.count,
                       .used = params.used,
                       .renormalise = params.renormalise};
  launch_route(stream(), args);
  device_->copy_out(
      experts, reinterpret_cast<const std::byte*>(args.experts), size * sizeof(std::uint32_t));
  device_->copy_out(
      weights, reinterpret_cast<const std::byte*>(args.weights), size * sizeof(float));
}

void CudaBackend::write_kv(const KvArenaView& arena,
                           const AttentionParams& params,
                           std::span<const AttentionSlice> slices,
                           const float* k,
                           const float* v,
                           std::size_t stride) {
  if (!step_.has(slices)) {
    run_step({.arena = arena, .slices = slices},
             [&] { write_kv(arena, params, slices, k, v, stride); });
    return;
  }
  if (step_.num_rows() == 0) {
    return;
  }
  launch_write_kv(stream(),
                  {.pages = pages(arena, params.layer),
                   .rows = step_.rows(),
                   .keys = k,
                   .values = v,
                   .stride = stride,
                   .num_rows = u32(step_.num_rows()),
                   .first_kv_head = params.first_kv_head - copy_of(arena).heads().first,
                   .kv_heads = params.kv_heads});
}

void CudaBackend::attention(const KvArenaView& arena,
                            const AttentionParams& params,
                            std::span<const AttentionSlice> slices,
                            const float* q,
                            std::size_t q_stride,
                            float* out) {
  if (slices.empty()) {
    return;
  }
  BATON_CHECK(params.kv_heads > 0 && params.heads % params.kv_heads == 0,
              "query heads do not share KV heads evenly");
  const std::uint32_t group = params.heads / params.kv_heads;
  const auto tiles = step_.plan(slices, group, params.window);
  if (!tiles) {
    const StepInputs::Attention alone{slices, params.window};
    run_step({.arena = arena, .attentions = {&alone, 1}, .group = group},
             [&] { attention(arena, params, slices, q, q_stride, out); });
    return;
  }
  AttentionParams on_device = params;
  on_device.first_kv_head -= copy_of(arena).heads().first;
  attention_.run(pages(arena, params.layer), on_device, *tiles, q, q_stride, out);
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(std::unique_ptr<Device> device,
                                              unsigned threads,
                                              std::unique_ptr<NcclRank> rank,
                                              bool record_steps) {
  try {
    return std::make_unique<CudaBackend>(std::move(device), threads, std::move(rank), record_steps);
  } catch (const std::system_error& error) {
    return fail(
        ErrorCode::Unavailable,
        fmt::format("cannot start {} threads that pack weights: {}", threads, error.what()));
  }
}

}  // namespace baton::kernels::cuda
