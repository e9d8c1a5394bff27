// The fast backend: packs weights, spreads each operation over the pool's threads, and leaves the
// arithmetic to the kernel table of the best instruction set. Work is split only along outputs
// (features, rows, heads, chunks of positions), so the split never changes a bit.
#include "kernels/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/kernel_choice.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/kv_writer.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/numa.h"
#include "kernels/cpu/packed_weight.h"
#include "kernels/cpu/router.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/gguf_blocks.h"
#include "kernels/ops.h"

namespace baton::kernels {
namespace cpu {
namespace {

// Raised whenever any operation's bits change.
constexpr std::uint64_t kKernelRevision = 2;
static_assert(kKernelRevision < 256, "above it the family holds a probe");

// Elements below which an operation is done before the other threads have woken.
constexpr std::size_t kMinNorm = 16384;
constexpr std::size_t kMinGated = 4096;
constexpr std::size_t kMinRope = 8192;
constexpr std::size_t kMinHadamard = 8192;
constexpr std::size_t kMinAdd = 65536;
constexpr std::size_t kMinRoute = 512;
constexpr std::size_t kMinQuantise = 8192;
constexpr std::size_t kMinRows = 32;
constexpr std::size_t kMinKv = 768;        // a new key touches a cold line an element
constexpr std::size_t kMinMatmul = 65536;  // weight bytes and multiplications
constexpr std::size_t kMinTilesAThread = 8;
constexpr std::size_t kMaxOwnRows = 4;

const CpuMatrix& own(const PackedMatrix* matrix) {
  const auto* mine = dynamic_cast<const CpuMatrix*>(matrix);
  BATON_CHECK(mine != nullptr, "a weight packed by another backend");
  return *mine;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, unsigned threads, bool pin, std::string note)
      : kernels_(kernels),
        note_(std::move(note)),
        pool_(threads, pin),
        memory_(memory_nodes("/sys/devices/system/node", ThreadPool::usable_core_ids())),
        thread_scratch_(pool_.threads()) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    return fmt::format("cpu {}, {} thread{}{}{}",
                       kernels_.name,
                       pool_.threads(),
                       pool_.threads() == 1 ? "" : "s",
                       note_.empty() ? "" : "; ",
                       note_);
  }
  // Processors might round inside VDPBF16PS each in their own way: what this one's gives on fixed
  // operands is part of the family, so that nodes which would compute other bits refuse each other.
  std::uint64_t numerics_family() const override {
    const std::uint64_t probe = kernels_.probe == nullptr ? 0 : kernels_.probe() & 0xFFFFFF;
    return 0x4350550000000000ULL | std::uint64_t{kernels_.numerics} << 32 |  // "CPU"
           probe << 8 | kKernelRevision;
  }

  Result<std::unique_ptr<PackedMatrix>> pack(const WeightView& weight) override {
    BATON_TRY(check_weight(weight));
    const std::size_t panels = (weight.rows + kPanelRows - 1) / kPanelRows;
    const bool pairs = kernels_.pair_row_tile != 0;
    const std::size_t bytes = panels * CpuMatrix::panel_bytes(weight.dtype, weight.cols, pairs);
    if (auto kept = store_ == nullptr ? nullptr : store_->find(weight, bytes)) {
      // Never written: only pack_panel writes.
      return std::make_unique<CpuMatrix>(
          weight.dtype, weight.rows, weight.cols, std::const_pointer_cast<std::byte>(kept), pairs);
    }
    BATON_ASSIGN(std::shared_ptr<std::byte> memory, memory_.take(bytes));
    auto packed =
        std::make_unique<CpuMatrix>(weight.dtype, weight.rows, weight.cols, memory, pairs);
    packers().for_each(panels,
                       [&](unsigned, std::size_t panel) { packed->pack_panel(weight, panel); });
    if (store_ != nullptr) {
      store_->add(weight, std::move(memory), bytes);
    }
    return packed;
  }
  std::string packed_layout() const override {
    return fmt::format(
        "cpu.{}{}", kPackedLayoutRevision, kernels_.pair_row_tile != 0 ? ".pairs" : "");
  }
  void use_store(PackedStore* store) override {
    store_ = store;
    packers_.reset();
  }

  void embed(const PackedMatrix& table,
             std::span<const TokenId> ids,
             float scale,
             float* out) override {
    const CpuMatrix& w = own(&table);
    for_rows(ids.size(), ids.size() >= kMinRows, [&](std::size_t row) {
      BATON_CHECK(ids[row] >= 0 && static_cast<std::size_t>(ids[row]) < w.rows(),
                  "token id out of range");
      w.read_row(static_cast<std::size_t>(ids[row]), scale, out + row * w.cols());
    });
  }

  void matmul(const float* x, std::size_t m, std::span<const MatmulOut> outs) override;

  void rms_norm(const float* x,
                std::size_t m,
                std::size_t dim,
                const float* weight,
                float eps,
                float* out) override {
    for_row_ranges(m, m * dim >= kMinNorm, [&](std::size_t first, std::size_t count) {
      kernels_.rms_norm(x + first * dim, count, dim, weight, eps, out + first * dim);
    });
  }

  void rope(float* x,
            std::size_t m,
            std::size_t stride,
            std::size_t heads,
            std::size_t head_dim,
            std::span<const std::uint32_t> positions,
            const RopeTable& table,
            RopeStyle style) override {
    const std::size_t half = table.half_dim;
    BATON_CHECK(positions.size() == m && 2 * half <= head_dim, "rope shapes differ");
    const auto rotate =
        style == RopeStyle::Interleaved ? kernels_.rope_interleaved : kernels_.rope_halves;
    for_rows(m, m * heads * head_dim >= kMinRope, [&](std::size_t row) {
      const std::size_t at = positions[row];
      BATON_CHECK(at < table.positions, "position beyond the rope table");
      rotate(x + row * stride,
             heads,
             head_dim,
             table.cosines.data() + at * half,
             table.sines.data() + at * half,
             half);
    });
  }

  void hadamard(float* x, std::size_t rows, std::size_t dim, float factor) override {
    for_row_ranges(rows, rows * dim >= kMinHadamard, [&](std::size_t first, std::size_t count) {
      kernels_.hadamard(x + first * dim, count, dim, factor);
    });
  }

  void silu_mul(const float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim,
                std::size_t stride,
                float* out) override {
    for_rows(m, m * dim >= kMinGated, [&](std::size_t row) {
      kernels_.silu_mul(gate + row * stride, up + row * stride, dim, out + row * stride);
    });
  }
  void gelu_mul(const float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim,
                std::size_t stride,
                float* out) override {
    for_rows(m, m * dim >= kMinGated, [&](std::size_t row) {
      kernels_.gelu_mul(gate + row * stride, up + row * stride, dim, out + row * stride);
    });
  }

  void add(float* x, const float* y, std::size_t n) override {
    for_row_ranges(n, n >= kMinAdd, [&](std::size_t first, std::size_t count) {
      kernels_.add(x + first, y + first, count);
    });
  }

  void add_bias(float* x, std::size_t m, std::size_t dim, const float* bias) override {
    for_rows(
        m, m * dim >= kMinAdd, [&](std::size_t row) { kernels_.add(x + row * dim, bias, dim); });
  }

  void softcap(float* x, std::size_t n, float cap) override {
    for_row_ranges(n, n >= kMinGated, [&](std::size_t first, std::size_t count) {
      kernels_.softcap(x + first, count, cap);
    });
  }

  void route(const float* logits,
             std::size_t m,
             const RouteParams& params,
             std::uint32_t* experts,
             float* weights) override {
    BATON_CHECK(params.used >= 1 && params.used <= params.count,
                "more experts used than there are");
    for_rows(m, m * params.count >= kMinRoute, [&](std::size_t row) {
      route_row(logits + row * params.count,
                params,
                experts + row * params.used,
                weights + row * params.used);
    });
  }

  void gather_rows(const float* x,
                   std::size_t dim,
                   std::span<const std::uint32_t> rows,
                   float* out) override {
    for_rows(rows.size(), rows.size() * dim >= kMinAdd, [&](std::size_t row) {
      std::copy_n(x + rows[row] * dim, dim, out + row * dim);
    });
  }

  void mix_rows(const float* x,
                std::size_t dim,
                std::span<const std::uint32_t> rows,
                const float* weights,
                std::size_t used,
                float* out) override {
    const std::size_t m = rows.size() / used;
    for_rows(m, rows.size() * dim >= kMinAdd, [&](std::size_t row) {
      kernels_.mix_rows(
          x, dim, rows.data() + row * used, weights + row * used, used, out + row * dim);
    });
  }

  void write_kv(const KvArenaView& arena,
                const AttentionParams& params,
                std::span<const AttentionSlice> slices,
                const float* k,
                const float* v,
                std::size_t stride) override {
    std::size_t rows = 0;
    for (const AttentionSlice& slice : slices) {
      check_slice(arena, params, slice);
      rows += slice.num_rows;
    }
    const bool parallel = rows * params.kv_heads * params.head_dim >= kMinKv;
    for_row_ranges(rows, parallel, [&](std::size_t first, std::size_t count) {
      write_rows(kernels_, arena, params, slices, first, count, k, v, stride);
    });
  }

  void attention(const KvArenaView& arena,
                 const AttentionParams& params,
                 std::span<const AttentionSlice> slices,
                 const float* q,
                 std::size_t q_stride,
                 float* out) override {
    for (const AttentionSlice& slice : slices) {
      check_slice(arena, params, slice);
    }
    plan_.make(arena, params, slices, q, q_stride, out, pool_.threads());
    reserve_thread_scratch(
        attention_scratch_bytes(params.heads / params.kv_heads, params.head_dim));
    pool_.for_each(plan_.attend().size(), [&](unsigned thread, std::size_t i) {
      AttentionJob job = plan_.attend()[i];
      job.scratch = thread_scratch_[thread].get();
      job.partials == nullptr ? kernels_.attend_rows(job) : kernels_.attend_chunk(job);
    });
    const auto merge = [&](unsigned thread, std::size_t i) {
      AttentionJob job = plan_.merge()[i];
      job.scratch = thread_scratch_[thread].get();
      kernels_.merge_chunks(job);
    };
    if (plan_.merge_floats() >= kMinNorm) {
      pool_.for_each(plan_.merge().size(), merge);
    } else {
      for (std::size_t i = 0; i < plan_.merge().size(); ++i) {
        merge(0, i);
      }
    }
  }

 private:
  struct ThreadScratch {
    Scratch<std::byte> buffer;
    std::byte* place = nullptr;
    std::byte* get() const { return place; }
  };

  // Weights for a store are packed by all cores, however few threads will compute.
  ThreadPool& packers() {
    const unsigned cores = ThreadPool::usable_cores();
    if (packers_ == nullptr && store_ != nullptr && cores > pool_.threads()) {
      try {
        packers_ = std::make_unique<ThreadPool>(cores, false);
      } catch (const std::system_error&) {
        return pool_;
      }
    }
    return packers_ == nullptr ? pool_ : *packers_;
  }

  void reserve_thread_scratch(std::size_t bytes) {
    for (ThreadScratch& scratch : thread_scratch_) {
      scratch.place = scratch.buffer.at_least(bytes);
    }
  }

  // body(first, count) over pieces of [0, rows), one a thread.
  template <class Body>
  void for_row_ranges(std::size_t rows, bool parallel, const Body& body) {
    const std::size_t threads = pool_.threads();
    if (!parallel || threads == 1) {
      body(std::size_t{0}, rows);
      return;
    }
    pool_.run([&](unsigned thread) {
      const std::size_t first = rows * thread / threads;
      const std::size_t end = rows * (thread + 1) / threads;
      if (first < end) {
        body(first, end - first);
      }
    });
  }
  template <class Body>
  void for_rows(std::size_t rows, bool parallel, const Body& body) {
    for_row_ranges(rows, parallel, [&](std::size_t first, std::size_t count) {
      for (std::size_t row = first; row < first + count; ++row) {
        body(row);
      }
    });
  }

  static void check_slice(const KvArenaView& arena,
                          const AttentionParams& params,
                          const AttentionSlice& slice) {
    BATON_CHECK(params.layer < arena.layout.layers && params.kv_heads > 0 &&
                    params.first_kv_head + params.kv_heads <= arena.layout.kv_heads &&
                    params.head_dim == arena.layout.head_dim && params.heads % params.kv_heads == 0,
                "attention parameters do not fit the arena");
    BATON_CHECK(
        slice.blocks.size() >= arena.layout.blocks_for(slice.first_position + slice.num_rows),
        "the block table is too short for the slice");
  }

  // What some weights multiply in place of the floats: 8-bit codes, or pairs of BF16.
  struct Activations {
    RowTiles tiles{};
    std::size_t row_words = 0;
    void (*make)(const QuantiseJob& job) = nullptr;
    bool wanted = false;
    Scratch<std::uint32_t> memory;
    std::uint32_t* data = nullptr;

    // Room for so many copies of all rows.
    void reserve(std::size_t copies) {
      data = wanted ? memory.at_least(copies * tiles.rows * row_words) : nullptr;
    }
    std::uint32_t* copy(std::size_t i) const {
      return wanted ? data + i * tiles.rows * row_words : nullptr;
    }
    void make_tiles(const float* x,
                    std::size_t cols,
                    std::size_t first,
                    std::size_t end,
                    std::size_t to = 0) const {
      if (wanted) {
        make({x, cols, tiles, first, end, copy(to)});
      }
    }
  };
  Activations* activations_of(DType dtype) {
    return is_quantised(dtype)                                   ? &codes_
           : dtype == DType::BF16 && kernels_.pair_row_tile != 0 ? &pairs_
                                                                 : nullptr;
  }
  void run_job(MatmulJob job, unsigned thread, std::size_t copy = 0) {
    const Activations* activations = activations_of(job.dtype);
    job.activations = activations == nullptr ? nullptr : activations->copy(copy);
    job.scratch = thread_scratch_[thread].get();
    kernels_.matmul(job);
  }

  void by_rows(const float* x, std::size_t cols);
  void by_features(const float* x, std::size_t m, std::size_t cols, std::size_t cost);

  const KernelTable& kernels_;
  std::string note_;
  ThreadPool pool_;
  WeightMemory memory_;
  PackedStore* store_ = nullptr;
  std::unique_ptr<ThreadPool> packers_;  // while weights for a store are packed
  AttentionPlan plan_;
  std::vector<ThreadScratch> thread_scratch_;
  Activations codes_;
  Activations pairs_;
  std::vector<MatmulJob> jobs_;
};

void CpuBackend::matmul(const float* x, std::size_t m, std::span<const MatmulOut> outs) {
  if (m == 0 || outs.empty()) {
    return;
  }
  const std::size_t cols = outs.front().weight->cols();
  codes_.tiles = quant_row_tiles(kernels_, m);
  codes_.row_words = cols / kQuantBlock * kActivationWords;
  codes_.make = kernels_.quantise;
  codes_.wanted = false;
  pairs_.tiles = make_row_tiles(m, std::max<std::size_t>(1, kernels_.pair_row_tile));
  pairs_.row_words = pairs_of(cols);
  pairs_.make = kernels_.round_pairs;
  pairs_.wanted = false;
  std::size_t cost = 0;
  jobs_.clear();
  for (const MatmulOut& out : outs) {
    const CpuMatrix& w = own(out.weight);
    BATON_CHECK(w.cols() == cols, "products of one input take weights of one width");
    MatmulJob job{};
    job.dtype = w.dtype();
    job.weight = w.data();
    job.panel_bytes = w.panel_bytes();
    job.rows = w.rows();
    job.cols = cols;
    job.end_panel = w.panels();
    job.x = x;
    if (Activations* activations = activations_of(w.dtype()); activations != nullptr) {
      activations->wanted = true;
      job.tiles = activations->tiles;
    } else {
      job.tiles = make_row_tiles(m, kernels_.float_row_tile);
    }
    job.end_tile = job.tiles.count;
    job.y = out.y;
    job.y_stride = out.y_stride == 0 ? w.rows() : out.y_stride;
    job.accumulate = out.accumulate;
    jobs_.push_back(job);
    cost += w.panels() * (w.panel_bytes() + m * cols);
  }
  reserve_thread_scratch(matmul_scratch_bytes(cols));
  if (cost < kMinMatmul || pool_.threads() == 1) {
    for (Activations* activations : {&codes_, &pairs_}) {
      activations->reserve(1);
      activations->make_tiles(x, cols, 0, activations->tiles.count);
    }
    for (const MatmulJob& job : jobs_) {
      run_job(job, 0);
    }
  } else if (codes_.tiles.count >= kMinTilesAThread * pool_.threads()) {
    by_rows(x, cols);
  } else {
    by_features(x, m, cols, cost);
  }
}

// Many rows: a part rounds its own and multiplies them with all weights, so that activations and
// results stay in its core's cache and nothing waits between the two.
void CpuBackend::by_rows(const float* x, std::size_t cols) {
  const std::size_t parts = pool_.threads();
  codes_.reserve(1);
  pairs_.reserve(1);
  pool_.run([&](unsigned part) {
    for (Activations* activations : {&codes_, &pairs_}) {
      const std::size_t count = activations->tiles.count;
      activations->make_tiles(x, cols, count * part / parts, count * (part + 1) / parts);
    }
    for (MatmulJob job : jobs_) {
      job.first_tile = job.tiles.count * part / parts;
      job.end_tile = job.tiles.count * (part + 1) / parts;
      run_job(job, part);
    }
  });
}

// Few rows: a part has neighbouring output features, an equal share of the weights' bytes. With
// very few rows each part rounds them for itself, which takes less than handing them over.
void CpuBackend::by_features(const float* x, std::size_t m, std::size_t cols, std::size_t cost) {
  const std::size_t parts = pool_.threads();
  const bool each_its_own = m <= kMaxOwnRows;
  for (Activations* activations : {&codes_, &pairs_}) {
    activations->reserve(each_its_own ? parts : 1);
    if (activations->wanted && !each_its_own) {
      for_row_ranges(activations->tiles.count,
                     m * cols >= kMinQuantise,
                     [&](std::size_t first, std::size_t count) {
                       activations->make_tiles(x, cols, first, first + count);
                     });
    }
  }
  pool_.run([&](unsigned part) {
    if (each_its_own) {
      for (const Activations* activations : {&codes_, &pairs_}) {
        activations->make_tiles(x, cols, 0, activations->tiles.count, part);
      }
    }
    std::size_t start = 0;
    for (MatmulJob job : jobs_) {
      const std::size_t each = job.panel_bytes + m * cols;
      const std::size_t panels = job.end_panel;
      const auto panel_at = [&](std::size_t border) {
        return border <= start ? 0 : std::min(panels, (border - start + each / 2) / each);
      };
      job.first_panel = panel_at(cost / parts * part);
      job.end_panel = part + 1 == parts ? panels : panel_at(cost / parts * (part + 1));
      start += panels * each;
      if (job.first_panel < job.end_panel) {
        run_job(job, part, each_its_own ? part : 0);
      }
    }
  });
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const KernelTable& kernels,
                                              const CpuOptions& options,
                                              std::string note) {
  const unsigned threads = options.threads == 0 ? ThreadPool::usable_cores() : options.threads;
  try {
    return std::make_unique<CpuBackend>(kernels, threads, options.pin_threads, std::move(note));
  } catch (const std::system_error& error) {
    return fail(ErrorCode::Unavailable,
                fmt::format("cannot start {} kernel threads: {}", threads, error.what()));
  }
}

}  // namespace cpu

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuOptions& options) {
  BATON_ASSIGN(cpu::KernelChoice choice,
               cpu::choose_kernels(options.isa, options.float_path, cpu::this_machine()));
  return cpu::make_backend(*choice.kernels, options, std::move(choice.note));
}

}  // namespace baton::kernels
