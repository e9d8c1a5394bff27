// The bytes that a step reads are taken as the file's size times the share of its elements that a
// row is multiplied with: exact where all weights have one type, near where a few do not.
#include "cli/plan/plan_model.h"

#include <filesystem>

#include "engine/model/model.h"
#include "engine/model/model_file.h"

namespace baton::cli {
namespace {

std::uint64_t size_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    return fs::file_size(path, ignored);
  }
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".safetensors") {
      bytes += fs::file_size(entry.path(), ignored);
    }
  }
  return bytes;
}

}  // namespace

Result<PlanModel> plan_model(const std::string& path, std::uint32_t block_tokens, KvDType dtype) {
  BATON_ASSIGN(const auto file, engine::ModelFile::open(path));
  BATON_ASSIGN(const auto spec, file->decoder_spec());
  BATON_ASSIGN(const auto table, file->tensor("token_embd.weight"));
  PlanModel model;
  BATON_ASSIGN(model.layout, engine::kv_layout_of(*file, block_tokens, dtype));
  model.attention_width = std::uint64_t{spec.heads} * spec.head_dim;
  const std::uint64_t layers = spec.layers.size();
  const std::uint64_t attention =
      spec.dim * (2 * model.attention_width + std::uint64_t{2} * spec.kv_heads * spec.head_dim);
  const std::uint64_t feed_forward = std::uint64_t{3} * spec.dim * spec.ffn;
  const std::uint64_t router = std::uint64_t{spec.dim} * spec.experts.count;
  const std::uint64_t used = spec.experts.count == 0 ? 1 : spec.experts.used;
  const std::uint64_t there = spec.experts.count == 0 ? 1 : spec.experts.count;
  model.row_products = layers * (attention + router + used * feed_forward);
  model.head_products = std::uint64_t{table.rows} * spec.dim;
  const bool own_head = file->has_tensor("output.weight");
  const std::uint64_t elements = layers * (attention + router + there * feed_forward) +
                                 model.head_products * (own_head ? 2 : 1);
  model.weight_bytes =
      static_cast<std::uint64_t>(static_cast<double>(size_of(path)) *
                                 static_cast<double>(model.row_products + model.head_products) /
                                 static_cast<double>(elements));
  return model;
}

}  // namespace baton::cli
