#include "engine/model/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "common/base/check.h"
#include "common/base/fixed_math.h"

namespace baton::engine {
namespace {

class KeyReader {
 public:
  explicit KeyReader(const ModelFile& file) : file_(file), prefix_(file.architecture()) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }

  Result<std::uint32_t> count(std::string_view name, std::uint64_t high) const {
    const auto value = file_.get_uint(key(name));
    if (!value || *value < 1 || *value > high) {
      return fail(ErrorCode::InvalidModel,
                  value ? fmt::format("key {}: must be 1 to {}, is {}", key(name), high, *value)
                        : fmt::format("key {}: missing or not an integer", key(name)));
    }
    return static_cast<std::uint32_t>(*value);
  }
  Result<std::uint32_t> count_or(std::string_view name,
                                 std::uint64_t high,
                                 std::uint32_t other) const {
    return file_.get_uint(key(name)) ? count(name, high) : Result<std::uint32_t>(other);
  }
  Result<double> positive_or(std::string_view name, double other) const {
    const double value = file_.get_float(key(name)).value_or(other);
    if (!std::isfinite(value) || value <= 0 || value > 1e12) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("key {}: must be a positive number, is {}", key(name), value));
    }
    return value;
  }

 private:
  const ModelFile& file_;
  std::string prefix_;
};

}  // namespace

Result<Hyperparameters> read_hyperparameters(const ModelFile& file) {
  const KeyReader keys(file);
  Hyperparameters out;
  BATON_ASSIGN(out.layers, keys.count("block_count", 1024));
  BATON_ASSIGN(out.dim, keys.count("embedding_length", 1U << 16U));
  BATON_ASSIGN(out.ffn, keys.count("feed_forward_length", 1U << 20U));
  BATON_ASSIGN(out.heads, keys.count("attention.head_count", 1024));
  BATON_ASSIGN(out.kv_heads, keys.count_or("attention.head_count_kv", 1024, out.heads));
  BATON_ASSIGN(out.head_dim,
               keys.count_or("attention.key_length", 1024, std::max(1U, out.dim / out.heads)));
  BATON_ASSIGN(const auto value_dim, keys.count_or("attention.value_length", 1024, out.head_dim));
  BATON_ASSIGN(const auto rope_dim, keys.count_or("rope.dimension_count", 1024, out.head_dim));
  BATON_ASSIGN(out.context, keys.count("context_length", 1U << 24U));
  BATON_ASSIGN(const double eps, keys.positive_or("attention.layer_norm_rms_epsilon", 1e-5));
  out.eps = static_cast<float>(eps);
  BATON_ASSIGN(out.rope_base, keys.positive_or("rope.freq_base", 1e4));
  if (out.heads % out.kv_heads != 0) {
    return fail(
        ErrorCode::InvalidModel,
        fmt::format(
            "{} attention heads do not share {} key-value heads evenly", out.heads, out.kv_heads));
  }
  if (value_dim != out.head_dim || rope_dim != out.head_dim || out.head_dim % 2 != 0) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("head sizes are not supported: keys {}, values {}, rotated {}",
                            out.head_dim,
                            value_dim,
                            rope_dim));
  }
  const auto scaling = file.get_string(keys.key("rope.scaling.type")).value_or("none");
  if (scaling == "linear") {
    BATON_ASSIGN(out.rope_factor, keys.positive_or("rope.scaling.factor", 1.0));
  } else if (scaling != "none") {
    return fail(ErrorCode::InvalidModel,
                fmt::format("key {}: only \"none\" and \"linear\" are supported",
                            keys.key("rope.scaling.type")));
  }
  return out;
}

Result<kernels::WeightView> WeightLoader::required(const std::string& name) const {
  auto view = file_.tensor(name);
  if (!view) {
    return fail(ErrorCode::InvalidModel, view.error().message);
  }
  return view;
}

Result<std::unique_ptr<kernels::PackedMatrix>> WeightLoader::matrix(const std::string& name,
                                                                    std::size_t rows,
                                                                    std::size_t cols) {
  BATON_ASSIGN(const auto view, required(name));
  if (view.rows != rows || view.cols != cols) {
    return fail(
        ErrorCode::InvalidModel,
        fmt::format(
            "tensor {}: {} rows of {}, expected {} of {}", name, view.rows, view.cols, rows, cols));
  }
  auto packed = backend_.pack(view);
  if (!packed) {
    return fail(packed.error().code, fmt::format("tensor {}: {}", name, packed.error().message));
  }
  bytes_ += (*packed)->bytes();
  elements_ += std::uint64_t{rows} * cols;
  return packed;
}

Result<std::vector<float>> WeightLoader::vector(const std::string& name, std::size_t size) {
  BATON_ASSIGN(const auto view, required(name));
  if (view.rows != 1 || view.cols != size || view.dtype != kernels::DType::F32) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("tensor {}: {} rows of {} {}, expected {} F32 values",
                            name,
                            view.rows,
                            view.cols,
                            kernels::info(view.dtype).name,
                            size));
  }
  std::vector<float> out(size);
  std::memcpy(out.data(), view.data.data(), size * sizeof(float));
  bytes_ += size * sizeof(float);
  return out;
}

FloatBuffer::FloatBuffer(std::size_t size) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = (size * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, std::max(bytes, kAlignment))));
  if (data_ == nullptr) {
    throw std::bad_alloc();
  }
}

void FloatBuffer::Free::operator()(float* data) const {
  std::free(data);
}

RopeAngles::RopeAngles(std::size_t head_dim,
                       double base,
                       double position_scale,
                       std::span<const float> factors,
                       std::size_t max_rows)
    : frequencies_(head_dim / 2),
      cosines_(max_rows * (head_dim / 2)),
      sines_(max_rows * (head_dim / 2)) {
  const double log_base = fixed_log(base);
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    frequencies_[i] = fixed_exp(-exponent * log_base) * position_scale;
    if (!factors.empty()) {
      frequencies_[i] /= static_cast<double>(factors[i]);
    }
  }
}

kernels::RopeTable RopeAngles::table_for(std::span<const std::uint32_t> positions) {
  const std::size_t half = frequencies_.size();
  for (std::size_t row = 0; row < positions.size(); ++row) {
    for (std::size_t i = 0; i < half; ++i) {
      double sine = 0;
      double cosine = 0;
      fixed_sincos(positions[row] * frequencies_[i], sine, cosine);
      cosines_.data()[row * half + i] = static_cast<float>(cosine);
      sines_.data()[row * half + i] = static_cast<float>(sine);
    }
  }
  const std::size_t size = positions.size() * half;
  return {positions.size(), half, {cosines_.data(), size}, {sines_.data(), size}};
}

StepRows::StepRows(std::size_t max_rows) : row_numbers_(max_rows) {
  for (std::size_t i = 0; i < max_rows; ++i) {
    row_numbers_[i] = static_cast<std::uint32_t>(i);
  }
}

void StepRows::clear() {
  ids_.clear();
  positions_.clear();
  slices_.clear();
  wanted_.clear();
  wanted_slices_.clear();
}

void StepRows::add(const SequenceSlice& slice, std::uint32_t block_tokens, bool all_wanted) {
  const std::size_t first = size();
  const std::size_t count = slice.tokens.size();
  BATON_CHECK(count > 0, "a slice without tokens");
  BATON_CHECK(first + count <= row_numbers_.size(), "a step wider than max_step_tokens");
  BATON_CHECK(slice.blocks.size() * block_tokens >= slice.first_position + count,
              "a slice's blocks do not cover its positions");
  ids_.insert(ids_.end(), slice.tokens.begin(), slice.tokens.end());
  for (std::size_t i = 0; i < count; ++i) {
    positions_.push_back(slice.first_position + static_cast<std::uint32_t>(i));
  }
  slices_.push_back({first, count, slice.first_position, slice.blocks});
  if (!all_wanted && !slice.sample) {
    return;
  }
  for (std::size_t i = all_wanted ? 0 : count - 1; i < count; ++i) {
    wanted_slices_.push_back(
        {wanted_.size(), 1, slice.first_position + static_cast<std::uint32_t>(i), slice.blocks});
    wanted_.push_back(static_cast<std::uint32_t>(first + i));
  }
}

void keep_rows(std::span<const std::uint32_t> wanted, float* x, std::size_t dim) {
  for (std::size_t to = 0; to < wanted.size(); ++to) {
    if (wanted[to] != to) {
      std::memcpy(x + to * dim, x + wanted[to] * dim, dim * sizeof(float));
    }
  }
}

}  // namespace baton::engine
