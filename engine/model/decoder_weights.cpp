#include "engine/model/decoder_weights.h"

#include <fmt/format.h>

#include <cstring>

namespace baton::engine {
namespace {

using kernels::PackedMatrix;

class Loader {
 public:
  Loader(const ModelFile& file,
         const DecoderSpec& spec,
         const RankShare& share,
         kernels::Backend& backend)
      : file_(file), spec_(spec), share_(share), backend_(backend) {}

  Result<DecoderWeights> load() {
    BATON_ASSIGN(const auto table, required("token_embd.weight"));
    if (table.rows == 0 || table.rows > (1U << 24U)) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("tensor token_embd.weight: a vocabulary of {}", table.rows));
    }
    DecoderWeights out;
    BATON_ASSIGN(out.embedding, matrix("token_embd.weight", table.rows, spec_.dim));
    if (file_.has_tensor("output.weight")) {
      BATON_ASSIGN(out.output, matrix("output.weight", table.rows, spec_.dim));
    }
    const std::uint64_t tables = elements_;
    BATON_ASSIGN(out.output_norm, vector("output_norm.weight", spec_.dim));
    for (std::size_t layer = 0; layer < spec_.layers.size(); ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      BATON_ASSIGN(auto weights, load_layer());
      out.layers.push_back(std::move(weights));
    }
    out.bytes = bytes_;
    out.layer_products = elements_ - tables;
    return out;
  }

 private:
  Result<LayerWeights> load_layer();
  std::string in_layer(std::string_view what) const {
    return fmt::format("{}{}.weight", prefix_, what);
  }

  Result<kernels::WeightView> required(const std::string& name) const {
    auto view = file_.tensor(name);
    if (!view) {
      return fail(ErrorCode::InvalidModel, view.error().message);
    }
    return view;
  }

  // Rows `part` of a matrix of `rows` rows.
  Result<std::unique_ptr<PackedMatrix>> matrix(const std::string& name,
                                               std::size_t rows,
                                               std::size_t cols,
                                               std::size_t first,
                                               std::size_t count) {
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
    const std::size_t row_bytes = kernels::row_bytes(view.dtype, cols);
    view.rows = count;
    view.data = view.data.subspan(first * row_bytes, count * row_bytes);
    auto packed = backend_.pack(view);
    if (!packed) {
      return fail(packed.error().code, fmt::format("tensor {}: {}", name, packed.error().message));
    }
    bytes_ += (*packed)->bytes();
    elements_ += std::uint64_t{count} * cols;
    return packed;
  }
  Result<std::unique_ptr<PackedMatrix>> matrix(const std::string& name,
                                               std::size_t rows,
                                               std::size_t cols) {
    return matrix(name, rows, cols, 0, rows);
  }

  // A vector of float32, as norms are.
  Result<std::vector<float>> vector(const std::string& name, std::size_t size) {
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

  const ModelFile& file_;
  const DecoderSpec& spec_;
  const RankShare& share_;
  kernels::Backend& backend_;
  std::string prefix_;          // of the layer's tensors
  std::size_t bytes_ = 0;       // memory taken so far
  std::uint64_t elements_ = 0;  // of the matrices so far
};

Result<LayerWeights> Loader::load_layer() {
  for (const auto* bias : {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias"}) {
    if (const auto tensor = prefix_ + bias; file_.has_tensor(tensor)) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("tensor {}: biases are not supported", tensor));
    }
  }
  const std::size_t dim = spec_.dim;
  // Rows of the share's heads of a projection that has `heads` heads in all.
  const auto heads = [&](std::string_view name, std::size_t all, const IndexRange& part) {
    const std::size_t width = spec_.head_dim;
    return matrix(in_layer(name), all * width, dim, part.first * width, part.count * width);
  };
  LayerWeights out;
  BATON_ASSIGN(out.attn_norm, vector(in_layer("attn_norm"), dim));
  BATON_ASSIGN(out.q, heads("attn_q", spec_.heads, share_.heads));
  BATON_ASSIGN(out.k, heads("attn_k", spec_.kv_heads, share_.kv_heads));
  BATON_ASSIGN(out.v, heads("attn_v", spec_.kv_heads, share_.kv_heads));
  if (spec_.qk_norm) {
    BATON_ASSIGN(out.q_norm, vector(in_layer("attn_q_norm"), spec_.head_dim));
    BATON_ASSIGN(out.k_norm, vector(in_layer("attn_k_norm"), spec_.head_dim));
  }
  BATON_ASSIGN(out.o,
               matrix(in_layer("attn_output"), dim, std::size_t{spec_.heads} * spec_.head_dim));
  BATON_ASSIGN(out.ffn_norm, vector(in_layer("ffn_norm"), dim));
  const IndexRange& ffn = share_.ffn;
  BATON_ASSIGN(out.gate, matrix(in_layer("ffn_gate"), spec_.ffn, dim, ffn.first, ffn.count));
  BATON_ASSIGN(out.up, matrix(in_layer("ffn_up"), spec_.ffn, dim, ffn.first, ffn.count));
  BATON_ASSIGN(out.down, matrix(in_layer("ffn_down"), dim, spec_.ffn));
  if (spec_.post_norms) {
    BATON_ASSIGN(out.post_attn_norm, vector(in_layer("post_attention_norm"), dim));
    BATON_ASSIGN(out.post_ffn_norm, vector(in_layer("post_ffw_norm"), dim));
  }
  return out;
}

}  // namespace

Result<DecoderWeights> load_decoder_weights(const ModelFile& file,
                                            const DecoderSpec& spec,
                                            const RankShare& share,
                                            kernels::Backend& backend) {
  return Loader(file, spec, share, backend).load();
}

}  // namespace baton::engine
