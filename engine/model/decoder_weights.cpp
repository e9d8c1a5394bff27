#include "engine/model/decoder_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace baton::engine {
namespace {

class Loader {
 public:
  Loader(const ModelFile& file,
         const DecoderSpec& spec,
         const RankShare& share,
         kernels::Backend& backend)
      : file_(file), spec_(spec), share_(share), backend_(backend) {}

  Result<DecoderWeights> load() {
    const IndexRange own = share_.own_vocab();
    const auto rows = [&](const std::string& name) {
      return matrix(name, share_.vocab.back(), spec_.dim, own.first, own.count);
    };
    DecoderWeights out;
    BATON_ASSIGN(out.embedding, rows("token_embd.weight"));
    if (file_.has_tensor("output.weight")) {
      BATON_ASSIGN(out.output, rows("output.weight"));
    }
    const std::uint64_t tables = elements_;
    BATON_ASSIGN(out.output_norm, vector("output_norm.weight", spec_.dim));
    for (std::size_t layer = 0; layer < spec_.layers.size(); ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      BATON_ASSIGN(auto weights, load_layer());
      out.layers.push_back(std::move(weights));
    }
    const std::uint64_t idle = spec_.experts.count - spec_.experts.used;
    const std::uint64_t count = std::max(1U, spec_.experts.count);
    out.bytes = bytes_;
    out.idle_expert_bytes = expert_bytes_ / count * idle;
    out.layer_products = elements_ - tables - expert_elements_ / count * idle;
    return out;
  }

 private:
  Result<LayerWeights> load_layer();
  Status load_attention(LayerWeights& out);
  Status load_feed_forward(LayerWeights& out);
  Status load_experts(LayerWeights& out);
  Status refuse_unknown_biases() const;
  std::string in_layer(std::string_view what) const {
    return fmt::format("{}{}.weight", prefix_, what);
  }
  std::string bias_in_layer(std::string_view what) const {
    return fmt::format("{}{}.bias", prefix_, what);
  }

  // Valid until another tensor is asked for: parts of one that had to be converted come one after
  // the other.
  Result<kernels::WeightView> required(const std::string& name) {
    if (name != held_name_) {
      auto tensor = file_.tensor(name);
      if (!tensor) {
        return fail(ErrorCode::InvalidModel, tensor.error().message);
      }
      held_ = std::move(*tensor);
      held_name_ = name;
    }
    return kernels::WeightView(held_);
  }

  // Rows [first, first + count) of a matrix of `rows` rows.
  Result<MatrixPtr> matrix(const std::string& name,
                           std::size_t rows,
                           std::size_t cols,
                           std::size_t first,
                           std::size_t count) {
    BATON_ASSIGN(auto view, shaped(name, rows, cols));
    const std::size_t row_bytes = kernels::row_bytes(view.dtype, cols);
    view.rows = count;
    view.data = view.data.subspan(first * row_bytes, count * row_bytes);
    return pack(name, view);
  }

  // Columns [first, first + count) of a matrix.
  Result<MatrixPtr> columns(const std::string& name,
                            std::size_t rows,
                            std::size_t cols,
                            std::size_t first,
                            std::size_t count) {
    if (count == cols) {
      return matrix(name, rows, cols);
    }
    BATON_ASSIGN(auto view, shaped(name, rows, cols));
    if (const std::size_t block = kernels::info(view.dtype).block_elements;
        first % block != 0 || count % block != 0) {
      return fail(
          ErrorCode::InvalidModel,
          fmt::format("tensor {}: columns {} to {} are not whole blocks of {} elements; use "
                      "model.partial_sums 1 and no tensor_parallel",
                      name,
                      first,
                      first + count,
                      block));
    }
    const std::size_t row_bytes = kernels::row_bytes(view.dtype, cols);
    const std::size_t from = kernels::row_bytes(view.dtype, first);
    const std::size_t width = kernels::row_bytes(view.dtype, count);
    std::vector<std::byte> cut(rows * width);
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(cut.data() + row * width, view.data.data() + row * row_bytes + from, width);
    }
    view.cols = count;
    view.data = cut;  // packing copies
    return pack(name, view);
  }

  Result<kernels::WeightView> shaped(const std::string& name, std::size_t rows, std::size_t cols) {
    BATON_ASSIGN(auto view, required(name));
    if (view.rows != rows || view.cols != cols) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("tensor {}: {} rows of {}, expected {} of {}",
                              name,
                              view.rows,
                              view.cols,
                              rows,
                              cols));
    }
    return view;
  }

  Result<MatrixPtr> pack(const std::string& name, const kernels::WeightView& view) {
    auto packed = backend_.pack(view);
    if (!packed) {
      return fail(packed.error().code, fmt::format("tensor {}: {}", name, packed.error().message));
    }
    bytes_ += (*packed)->bytes();
    elements_ += std::uint64_t{view.rows} * view.cols;
    return packed;
  }
  Result<MatrixPtr> matrix(const std::string& name, std::size_t rows, std::size_t cols) {
    return matrix(name, rows, cols, 0, rows);
  }

  // A vector of float32, as norms and biases are; or the part of one.
  Result<FloatVector> vector(const std::string& name, std::size_t size) {
    return vector(name, size, 0, size);
  }
  Result<FloatVector> vector(const std::string& name,
                             std::size_t size,
                             std::size_t first,
                             std::size_t count) {
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
    std::vector<float> out(count);
    std::memcpy(out.data(), view.data.data() + first * sizeof(float), count * sizeof(float));
    bytes_ += count * sizeof(float);
    return FloatVector(backend_, out);
  }

  const ModelFile& file_;
  const DecoderSpec& spec_;
  const RankShare& share_;
  kernels::Backend& backend_;
  std::string prefix_;  // of the layer's tensors
  std::string held_name_;
  ModelTensor held_;
  std::size_t bytes_ = 0;         // memory taken so far
  std::uint64_t elements_ = 0;    // of the matrices so far
  std::size_t expert_bytes_ = 0;  // of both, the experts' part
  std::uint64_t expert_elements_ = 0;
};

Result<LayerWeights> Loader::load_layer() {
  BATON_TRY(refuse_unknown_biases());
  LayerWeights out;
  BATON_ASSIGN(out.attn_norm, vector(in_layer("attn_norm"), spec_.dim));
  BATON_TRY(load_attention(out));
  BATON_ASSIGN(out.ffn_norm, vector(in_layer("ffn_norm"), spec_.dim));
  BATON_TRY(spec_.experts.count == 0 ? load_feed_forward(out) : load_experts(out));
  if (spec_.post_norms) {
    BATON_ASSIGN(out.post_attn_norm, vector(in_layer("post_attention_norm"), spec_.dim));
    BATON_ASSIGN(out.post_ffn_norm, vector(in_layer("post_ffw_norm"), spec_.dim));
  }
  return out;
}

// A bias that the spec does not speak of would be left out in silence.
Status Loader::refuse_unknown_biases() const {
  constexpr std::array kQkv{"attn_q", "attn_k", "attn_v"};
  constexpr std::array kOther{
      "attn_norm", "attn_qkv", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"};
  const auto refuse = [&](std::string_view what) -> Status {
    if (const auto name = bias_in_layer(what); file_.has_tensor(name)) {
      return fail(
          ErrorCode::InvalidModel,
          fmt::format(
              "tensor {}: this bias is not supported in {} models", name, spec_.architecture));
    }
    return {};
  };
  for (const auto* what : kOther) {
    BATON_TRY(refuse(what));
  }
  for (std::size_t i = 0; !spec_.qkv_bias && i < kQkv.size(); ++i) {
    BATON_TRY(refuse(kQkv[i]));
  }
  return spec_.output_bias ? Status{} : refuse("attn_output");
}

// Queries, keys and values lie in tensors of their own, or one after the other in one.
Status Loader::load_attention(LayerWeights& out) {
  const std::size_t width = spec_.head_dim;
  const std::size_t q_dim = spec_.heads * width;
  const std::size_t kv_dim = spec_.kv_heads * width;
  const std::string fused = in_layer("attn_qkv");
  const bool is_fused = file_.has_tensor(fused);
  const auto rows = [&](std::string_view name,
                        std::size_t fused_first,
                        std::size_t all,
                        const IndexRange& heads) {
    const std::size_t first = heads.first * width;
    const std::size_t count = heads.count * width;
    return is_fused ? matrix(fused, q_dim + 2 * kv_dim, spec_.dim, fused_first + first, count)
                    : matrix(in_layer(name), all, spec_.dim, first, count);
  };
  const bool has_heads = share_.heads.count > 0;  // a rank may have none
  if (has_heads) {
    BATON_ASSIGN(out.q, rows("attn_q", 0, q_dim, share_.heads));
    BATON_ASSIGN(out.k, rows("attn_k", q_dim, kv_dim, share_.kv_heads));
    BATON_ASSIGN(out.v, rows("attn_v", q_dim + kv_dim, kv_dim, share_.kv_heads));
  }
  if (has_heads && spec_.qkv_bias) {
    const auto bias = [&](std::string_view name, std::size_t all, const IndexRange& heads) {
      return vector(bias_in_layer(name), all, heads.first * width, heads.count * width);
    };
    BATON_ASSIGN(out.q_bias, bias("attn_q", q_dim, share_.heads));
    BATON_ASSIGN(out.k_bias, bias("attn_k", kv_dim, share_.kv_heads));
    BATON_ASSIGN(out.v_bias, bias("attn_v", kv_dim, share_.kv_heads));
  }
  if (spec_.qk_norm) {
    BATON_ASSIGN(out.q_norm, vector(in_layer("attn_q_norm"), width));
    BATON_ASSIGN(out.k_norm, vector(in_layer("attn_k_norm"), width));
  }
  const std::size_t group_width = spec_.heads / spec_.kv_heads * width;
  for (const IndexRange& piece : share_.attention.own) {
    BATON_ASSIGN(auto o,
                 columns(in_layer("attn_output"),
                         spec_.dim,
                         q_dim,
                         piece.first * group_width,
                         piece.count * group_width));
    out.o.push_back(std::move(o));
  }
  if (spec_.output_bias) {
    BATON_ASSIGN(out.o_bias, vector(bias_in_layer("attn_output"), spec_.dim));
  }
  return {};
}

// Gate and up lie in tensors of their own, or one after the other in ffn_up.
Status Loader::load_feed_forward(LayerWeights& out) {
  const std::string gate = in_layer("ffn_gate");
  const std::string up = in_layer("ffn_up");
  const std::size_t ffn = spec_.ffn;
  bool is_fused = false;
  if (!file_.has_tensor(gate) && file_.has_tensor(up)) {
    BATON_ASSIGN(const auto both, required(up));
    is_fused = both.rows == 2 * ffn;
  }
  const std::size_t rows = is_fused ? 2 * ffn : ffn;
  for (const IndexRange& piece : share_.feed_forward.own) {
    FeedForwardWeights w;
    BATON_ASSIGN(w.gate, matrix(is_fused ? up : gate, rows, spec_.dim, piece.first, piece.count));
    BATON_ASSIGN(w.up,
                 matrix(up, rows, spec_.dim, (is_fused ? ffn : 0) + piece.first, piece.count));
    BATON_ASSIGN(w.down, columns(in_layer("ffn_down"), spec_.dim, ffn, piece.first, piece.count));
    out.ffn.push_back(std::move(w));
  }
  return {};
}

// Each of three tensors holds all experts, one after the other; or each expert has its own three.
Status Loader::load_experts(LayerWeights& out) {
  const std::size_t count = spec_.experts.count;
  const std::size_t dim = spec_.dim;
  const std::size_t ffn = spec_.ffn;
  BATON_ASSIGN(out.router, matrix(in_layer("ffn_gate_inp"), count, dim));
  const std::size_t bytes = bytes_;
  const std::uint64_t elements = elements_;
  const bool stacked = file_.has_tensor(in_layer("ffn_gate_exps"));
  for (std::size_t e = 0; e < count; ++e) {
    const auto part = [&](std::string_view name,
                          std::size_t rows,
                          std::size_t cols,
                          std::size_t first,
                          std::size_t wanted) {
      return stacked ? matrix(in_layer(fmt::format("{}_exps", name)),
                              count * rows,
                              cols,
                              e * rows + first,
                              wanted)
                     : matrix(in_layer(fmt::format("{}.{}", name, e)), rows, cols, first, wanted);
    };
    FeedForwardWeights expert;
    BATON_ASSIGN(expert.gate, part("ffn_gate", ffn, dim, share_.ffn.first, share_.ffn.count));
    BATON_ASSIGN(expert.up, part("ffn_up", ffn, dim, share_.ffn.first, share_.ffn.count));
    BATON_ASSIGN(expert.down, part("ffn_down", dim, ffn, 0, dim));
    out.experts.push_back(std::move(expert));
  }
  expert_bytes_ += bytes_ - bytes;
  expert_elements_ += elements_ - elements;
  return {};
}

}  // namespace

Result<DecoderWeights> load_decoder_weights(const ModelFile& file,
                                            const DecoderSpec& spec,
                                            const RankShare& share,
                                            kernels::Backend& backend) {
  return Loader(file, spec, share, backend).load();
}

}  // namespace baton::engine
