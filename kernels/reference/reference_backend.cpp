// The reference backend: plain scalar code that is easy to believe. Weights are dequantised at
// load, activations stay float32, sums are double. Other backends are checked against it.
#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <numeric>
#include <vector>

#include "common/base/check.h"
#include "kernels/gguf_blocks.h"
#include "kernels/hadamard.h"
#include "kernels/ops.h"
#include "kernels/reference/reference_attention.h"

namespace baton::kernels {
namespace {

class ReferenceMatrix final : public PackedMatrix {
 public:
  ReferenceMatrix(std::size_t rows, std::size_t cols) : rows_(rows), cols_(cols) {
    values_.resize(rows * cols);
  }
  std::size_t rows() const override { return rows_; }
  std::size_t cols() const override { return cols_; }
  std::size_t bytes() const override { return values_.size() * sizeof(float); }
  float* row(std::size_t r) { return values_.data() + r * cols_; }
  const float* row(std::size_t r) const { return values_.data() + r * cols_; }

 private:
  std::size_t rows_;
  std::size_t cols_;
  std::vector<float> values_;  // [rows][cols]
};

const ReferenceMatrix& own(const PackedMatrix* matrix) {
  const auto* mine = dynamic_cast<const ReferenceMatrix*>(matrix);
  BATON_CHECK(mine != nullptr, "a weight packed by another backend");
  return *mine;
}

// Dot products of x with `kOutputs` neighbouring weight rows at once: each output's chain is in
// order, several chains hide the latency of an addition.
constexpr std::size_t kOutputs = 8;

void dot_rows(const float* x, const ReferenceMatrix& w, std::size_t first, double* sums) {
  for (std::size_t n = 0; n < kOutputs; ++n) {
    sums[n] = 0;
  }
  const std::size_t cols = w.cols();
  const float* rows = w.row(first);
  for (std::size_t k = 0; k < cols; ++k) {
    for (std::size_t n = 0; n < kOutputs; ++n) {
      sums[n] += static_cast<double>(x[k]) * static_cast<double>(rows[n * cols + k]);
    }
  }
}

double dot(const float* x, const float* w, std::size_t cols) {
  double sum = 0;
  for (std::size_t k = 0; k < cols; ++k) {
    sum += static_cast<double>(x[k]) * static_cast<double>(w[k]);
  }
  return sum;
}

void store(float* y, double sum, bool accumulate) {
  *y = accumulate ? *y + static_cast<float>(sum) : static_cast<float>(sum);
}

// Sorts all experts; the softmax is the textbook's.
void route_row(std::span<const float> logits,
               bool renormalise,
               std::span<std::uint32_t> experts,
               float* weights) {
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return logits[a] > logits[b];
  });
  std::copy_n(order.begin(), experts.size(), experts.begin());
  const double largest = logits[order[0]];
  double total = 0;
  for (std::size_t i = 0; i < (renormalise ? experts.size() : order.size()); ++i) {
    total += std::exp(logits[order[i]] - largest);
  }
  for (std::size_t i = 0; i < experts.size(); ++i) {
    weights[i] = static_cast<float>(std::exp(logits[experts[i]] - largest) / total);
  }
}

class ReferenceBackend final : public Backend {
 public:
  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "reference, scalar, 1 thread"; }
  std::uint64_t numerics_family() const override { return 0x5245460000000001ULL; }  // "REF", 1

  Result<std::unique_ptr<PackedMatrix>> pack(const WeightView& weight) override {
    BATON_TRY(check_weight(weight));
    try {
      auto packed = std::make_unique<ReferenceMatrix>(weight.rows, weight.cols);
      const std::size_t bytes = row_bytes(weight.dtype, weight.cols);
      for (std::size_t r = 0; r < weight.rows; ++r) {
        dequantise_row(weight.dtype, weight.data.data() + r * bytes, weight.cols, packed->row(r));
      }
      return packed;
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::OutOfMemory, "no memory for a dequantised weight");
    }
  }

  void embed(const PackedMatrix& table,
             std::span<const TokenId> ids,
             float scale,
             float* out) override {
    const ReferenceMatrix& w = own(&table);
    for (const TokenId id : ids) {
      BATON_CHECK(id >= 0 && static_cast<std::size_t>(id) < w.rows(), "token id out of range");
      const float* row = w.row(static_cast<std::size_t>(id));
      for (std::size_t i = 0; i < w.cols(); ++i) {
        *out++ = row[i] * scale;
      }
    }
  }

  void matmul(const float* x, std::size_t m, std::span<const MatmulOut> outs) override {
    for (const MatmulOut& out : outs) {
      const ReferenceMatrix& w = own(out.weight);
      const std::size_t stride = out.y_stride == 0 ? w.rows() : out.y_stride;
      for (std::size_t r = 0; r < m; ++r) {
        const float* x_row = x + r * w.cols();
        float* y_row = out.y + r * stride;
        std::size_t n = 0;
        for (; n + kOutputs <= w.rows(); n += kOutputs) {
          double sums[kOutputs];
          dot_rows(x_row, w, n, sums);
          for (std::size_t i = 0; i < kOutputs; ++i) {
            store(y_row + n + i, sums[i], out.accumulate);
          }
        }
        for (; n < w.rows(); ++n) {
          store(y_row + n, dot(x_row, w.row(n), w.cols()), out.accumulate);
        }
      }
    }
  }

  void rms_norm(const float* x,
                std::size_t m,
                std::size_t dim,
                const float* weight,
                float eps,
                float* out) override {
    for (std::size_t r = 0; r < m; ++r) {
      const double mean = dot(x + r * dim, x + r * dim, dim) / static_cast<double>(dim);
      const double factor = 1.0 / std::sqrt(mean + static_cast<double>(eps));
      for (std::size_t i = 0; i < dim; ++i) {
        out[r * dim + i] = static_cast<float>(x[r * dim + i] * factor * weight[i]);
      }
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
    const std::size_t half = table.half_dim;
    BATON_CHECK(positions.size() == m && 2 * half <= head_dim, "rope shapes differ");
    const std::size_t step = style == RopeStyle::Interleaved ? 2 : 1;
    const std::size_t partner = style == RopeStyle::Interleaved ? 1 : half;
    for (std::size_t r = 0; r < m; ++r) {
      BATON_CHECK(positions[r] < table.positions, "position beyond the rope table");
      const float* cosines = table.cosines.data() + positions[r] * half;
      const float* sines = table.sines.data() + positions[r] * half;
      for (std::size_t h = 0; h < heads; ++h) {
        float* head = x + r * stride + h * head_dim;
        for (std::size_t i = 0; i < half; ++i) {
          const double a = head[i * step];
          const double b = head[i * step + partner];
          head[i * step] = static_cast<float>(a * cosines[i] - b * sines[i]);
          head[i * step + partner] = static_cast<float>(a * sines[i] + b * cosines[i]);
        }
      }
    }
  }

  void hadamard(float* x, std::size_t rows, std::size_t dim, float factor) override {
    for (std::size_t r = 0; r < rows; ++r) {
      hadamard_row(x + r * dim, dim, factor);
    }
  }

  void silu_mul(const float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim,
                std::size_t stride,
                float* out) override {
    for (std::size_t r = 0; r < m; ++r) {
      for (std::size_t i = r * stride; i < r * stride + dim; ++i) {
        const double g = gate[i];
        out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
      }
    }
  }

  void gelu_mul(const float* gate,
                const float* up,
                std::size_t m,
                std::size_t dim,
                std::size_t stride,
                float* out) override {
    constexpr double kSqrt2OverPi = 0.79788456080286535588;
    for (std::size_t r = 0; r < m; ++r) {
      for (std::size_t i = r * stride; i < r * stride + dim; ++i) {
        const double g = gate[i];
        const double inner = kSqrt2OverPi * (g + 0.044715 * g * g * g);
        out[i] = static_cast<float>(0.5 * g * (1.0 + std::tanh(inner)) * up[i]);
      }
    }
  }

  void add(float* x, const float* y, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) {
      x[i] += y[i];
    }
  }

  void add_bias(float* x, std::size_t m, std::size_t dim, const float* bias) override {
    for (std::size_t i = 0; i < m * dim; ++i) {
      x[i] += bias[i % dim];
    }
  }

  void softcap(float* x, std::size_t n, float cap) override {
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x[i]) / cap));
    }
  }

  void route(const float* logits,
             std::size_t m,
             const RouteParams& params,
             std::uint32_t* experts,
             float* weights) override {
    BATON_CHECK(params.used >= 1 && params.used <= params.count,
                "more experts used than there are");
    for (std::size_t r = 0; r < m; ++r) {
      route_row({logits + r * params.count, params.count},
                params.renormalise,
                {experts + r * params.used, params.used},
                weights + r * params.used);
    }
  }

  void gather_rows(const float* x,
                   std::size_t dim,
                   std::span<const std::uint32_t> rows,
                   float* out) override {
    for (const std::uint32_t row : rows) {
      out = std::copy_n(x + row * dim, dim, out);
    }
  }

  void mix_rows(const float* x,
                std::size_t dim,
                std::span<const std::uint32_t> rows,
                const float* weights,
                std::size_t used,
                float* out) override {
    for (std::size_t r = 0; r < rows.size() / used; ++r) {
      for (std::size_t i = 0; i < dim; ++i) {
        double sum = 0;
        for (std::size_t j = r * used; j < (r + 1) * used; ++j) {
          sum += static_cast<double>(weights[j]) * static_cast<double>(x[rows[j] * dim + i]);
        }
        *out++ = static_cast<float>(sum);
      }
    }
  }

  void write_kv(const KvArenaView& arena,
                const AttentionParams& params,
                std::span<const AttentionSlice> slices,
                const float* k,
                const float* v,
                std::size_t stride) override {
    reference::write_kv(arena, params, slices, k, v, stride);
  }

  void attention(const KvArenaView& arena,
                 const AttentionParams& params,
                 std::span<const AttentionSlice> slices,
                 const float* q,
                 std::size_t q_stride,
                 float* out) override {
    reference::attention(arena, params, slices, q, q_stride, out);
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace baton::kernels
