#include "engine/model/hf_folder.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "common/json/json_doc.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_spec.h"
#include "engine/model/hf_config.h"
#include "engine/model/hf_names.h"
#include "engine/model/int4.h"
#include "engine/model/shards.h"
#include "engine/tokenizer/tokenizer_json.h"
#include "kernels/gguf_blocks.h"

namespace baton::engine {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using kernels::WeightView;

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20U;
constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20U;
constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20U;
constexpr std::size_t kShardSampleBytes = 4096;

std::string in(const std::string& folder, std::string_view file) {
  return fmt::format("{}/{}", folder, file);
}

// Says all that is missing at once, and why files that look alike do not do.
Status check_files(const std::string& folder) {
  std::error_code ignored;
  const auto there = [&](std::string_view file) { return fs::exists(in(folder, file), ignored); };
  std::vector<std::string> missing;
  for (const char* file : {"config.json", "tokenizer.json"}) {
    if (!there(file)) {
      missing.emplace_back(file);
    }
  }
  if (!there(Shards::kSingle) && !there(Shards::kIndex)) {
    missing.push_back(fmt::format("{} (or {} and its shards)", Shards::kSingle, Shards::kIndex));
  }
  if (missing.empty()) {
    return {};
  }
  std::string hint;
  if (there("pytorch_model.bin") || there("pytorch_model.bin.index.json")) {
    hint += "; pytorch_model.bin is not read, only safetensors";
  }
  if (there("tokenizer.model") && !there("tokenizer.json")) {
    hint += "; tokenizer.model alone is not read";
  }
  return fail(
      ErrorCode::NotFound,
      fmt::format("the model folder {} lacks {}{}", folder, fmt::join(missing, ", "), hint));
}

// A file that may be absent.
Result<std::optional<std::string>> optional_text(const std::string& path, std::size_t max_bytes) {
  auto text = read_text_file(path, max_bytes);
  if (!text && text.error().code == ErrorCode::NotFound) {
    return std::nullopt;
  }
  BATON_TRY(text);
  return std::optional<std::string>(std::move(*text));
}

std::optional<DType> float_type(SafeType type) {
  switch (type) {
    case SafeType::F32:
      return DType::F32;
    case SafeType::F16:
      return DType::F16;
    case SafeType::BF16:
      return DType::BF16;
    default:
      return std::nullopt;
  }
}

// Which stored row of a Llama q or k matrix each row is: pairs (i, i + d/2) of a head become
// neighbours, as GGUF files have them.
std::vector<std::uint32_t> paired_rows(std::uint64_t rows, std::uint32_t heads) {
  std::vector<std::uint32_t> from(rows);
  const std::uint64_t width = rows / heads;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t in_head = row % width;
    from[row] = static_cast<std::uint32_t>(row - in_head + in_head / 2 + in_head % 2 * (width / 2));
  }
  return from;
}

struct Int4Matrix {
  Int4Parts parts;
  Int4Plan plan;
};

class HfFolder final : public ModelFile {
 public:
  HfFolder(std::string path, HfConfig config, Shards shards)
      : path_(std::move(path)),
        config_(std::move(config)),
        names_(config_),
        shards_(std::move(shards)) {}

  // Sorts what the shards hold. `settings`: the texts that change what is computed.
  Status prepare(std::span<const std::string> settings) {
    if (config_.nested) {
      keep_language_model();
    }
    BATON_TRY(sort_tensors());
    if (!config_.tied_output && shards_.find("lm_head.weight") == nullptr &&
        !int4_.contains("lm_head")) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("{}: lm_head.weight is missing, and config.json does not say "
                              "tie_word_embeddings: true",
                              path_));
    }
    const ShardTensor* table = shards_.find("model.embed_tokens.weight");
    if (table == nullptr || table->tensor.shape.size() != 2 ||
        table->tensor.shape[0] != config_.vocab_size) {
      return fail(
          ErrorCode::InvalidModel,
          fmt::format("{}: model.embed_tokens.weight must have the {} rows that config.json "
                      "calls vocab_size",
                      path_,
                      config_.vocab_size));
    }
    take_hash(settings);
    return {};
  }

  std::string_view architecture() const override { return config_.architecture; }
  std::optional<std::uint64_t> get_uint(std::string_view key) const override {
    return value_of<std::uint64_t>(key);
  }
  std::optional<double> get_float(std::string_view key) const override {
    return value_of<double>(key);
  }
  std::optional<bool> get_bool(std::string_view key) const override { return value_of<bool>(key); }
  std::optional<std::string_view> get_string(std::string_view key) const override {
    const auto it = config_.values.find(key);
    const auto* text = it == config_.values.end() ? nullptr : std::get_if<std::string>(&it->second);
    return text == nullptr ? std::nullopt : std::optional<std::string_view>(*text);
  }

  bool has_tensor(std::string_view name) const override {
    if (config_.rope_factors.contains(name)) {
      return true;
    }
    const auto source = names_.source_of(name);
    if (!source || (name == "output.weight" && config_.tied_output)) {
      return false;
    }
    return shards_.find(source->name()) != nullptr ||
           (source->part == "weight" && int4_.contains(source->base));
  }

  Result<ModelTensor> tensor(std::string_view name) const override {
    if (!has_tensor(name)) {
      return fail(ErrorCode::NotFound,
                  fmt::format("{}: no tensor {}", path_, engine::quoted(name)));
    }
    if (const auto it = config_.rope_factors.find(name); it != config_.rope_factors.end()) {
      return float_vector(it->second);
    }
    return read(*names_.source_of(name));
  }

  std::uint64_t weights_hash() const override { return hash_; }
  Result<DecoderSpec> decoder_spec() const override { return read_gguf_spec(*this); }
  Result<TokenizerSpec> tokenizer_spec() const override;
  std::vector<std::string> notes() const override { return notes_; }

 private:
  template <class T>
  std::optional<T> value_of(std::string_view key) const {
    const auto it = config_.values.find(key);
    const T* value = it == config_.values.end() ? nullptr : std::get_if<T>(&it->second);
    return value == nullptr ? std::nullopt : std::optional<T>(*value);
  }

  void keep_language_model();
  Status sort_tensors();
  Status add_int4(const std::string& base);
  void take_hash(std::span<const std::string> settings);
  Result<ModelTensor> read(const HfSource& source) const;
  Result<ModelTensor> vector_of(const ShardTensor& stored, const HfSource& source) const;
  void forget_idle_biases();
  static ModelTensor float_vector(std::span<const float> values);

  std::string path_;
  HfConfig config_;
  HfNames names_;
  Shards shards_;
  std::map<std::string, Int4Matrix, std::less<>> int4_;  // by name without the last part
  std::vector<std::string> notes_;
  std::uint64_t hash_ = 0;
};

// "language_model.model.x" and "model.language_model.x" become "model.x"; the rest (a vision tower)
// goes.
void HfFolder::keep_language_model() {
  constexpr std::string_view kOuter = "language_model.";
  constexpr std::string_view kInner = "model.language_model.";
  std::map<std::string, ShardTensor, std::less<>> kept;
  for (auto& [name, tensor] : shards_.tensors()) {
    if (name.starts_with(kOuter)) {
      kept.emplace(name.substr(kOuter.size()), std::move(tensor));
    } else if (name.starts_with(kInner)) {
      kept.emplace("model." + name.substr(kInner.size()), std::move(tensor));
    } else if (name == "lm_head.weight") {
      kept.emplace(name, std::move(tensor));
    }
  }
  shards_.tensors() = std::move(kept);
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Quantised folders write biases of zeros for matrices that have none. Those of attention go only
// when all of the model's are zero.
void HfFolder::forget_idle_biases() {
  const auto is_bias = [](const std::string& name) { return name.ends_with(".bias"); };
  const auto in_attention = [](const std::string& name) {
    return name.find(".self_attn.") != std::string::npos;
  };
  bool attention_idle = config_.family != HfFamily::Qwen2;
  for (const auto& [name, stored] : shards_.tensors()) {
    if (is_bias(name) && in_attention(name) && !all_zero(stored.tensor.data)) {
      attention_idle = false;
    }
  }
  std::erase_if(shards_.tensors(), [&](const auto& entry) {
    return is_bias(entry.first) &&
           (in_attention(entry.first) ? attention_idle : all_zero(entry.second.tensor.data));
  });
}

// A tensor that no pass would ask for means that the model is another than config.json says.
Status HfFolder::sort_tensors() {
  forget_idle_biases();
  for (const auto& [name, stored] : shards_.tensors()) {
    const std::size_t dot = name.rfind('.');
    const std::string base = name.substr(0, dot);
    const std::string part = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (part == "inv_freq") {  // tables of rotary angles, in old folders
      continue;
    }
    const bool int4_part =
        part == "qweight" || part == "qzeros" || part == "scales" || part == "g_idx";
    if (!names_.is_known(base) || (!int4_part && part != "weight" && part != "bias") ||
        (int4_part && !config_.int4)) {
      return fail(ErrorCode::InvalidModel,
                  fmt::format("{}: tensor {} has no place in a model of the architecture {}{}",
                              stored.file,
                              engine::quoted(name),
                              config_.architecture,
                              int4_part && !config_.int4 ? " without quantization_config" : ""));
    }
    if (part == "qweight") {
      BATON_TRY(add_int4(base));
    } else if (part == "bias" && base.find(".self_attn.") == std::string::npos) {
      return fail(
          ErrorCode::InvalidModel,
          fmt::format(
              "{}: tensor {}: a bias is not supported here", stored.file, engine::quoted(name)));
    }
  }
  const auto rounded = std::count_if(int4_.begin(), int4_.end(), [](const auto& entry) {
    return entry.second.plan.dtype == DType::F16;
  });
  if (rounded > 0) {
    notes_.push_back(fmt::format(
        "{} of {} 4-bit matrices order their inputs by activation (desc_act), which no block of 32 "
        "can say: they are computed as F16, each weight rounded once",
        rounded,
        int4_.size()));
  }
  if (!config_.note.empty()) {
    notes_.push_back(config_.note);
  }
  return {};
}

Status HfFolder::add_int4(const std::string& base) {
  const auto part = [&](const char* name) -> const SafeTensor* {
    const ShardTensor* found = shards_.find(base + "." + name);
    return found == nullptr ? nullptr : &found->tensor;
  };
  if (part("weight") != nullptr) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: {} has both weight and qweight", path_, engine::quoted(base)));
  }
  Int4Matrix matrix;
  matrix.parts = {part("qweight"),
                  part("qzeros"),
                  part("scales"),
                  config_.int4->method == Int4Scheme::Method::Gptq ? part("g_idx") : nullptr,
                  fmt::format("{}: {}", shards_.find(base + ".qweight")->file, base)};
  BATON_ASSIGN(matrix.plan, plan_int4(*config_.int4, matrix.parts));
  int4_.emplace(base, std::move(matrix));
  return {};
}

// Settings, and of every tensor name, type, shape and three samples: tells folders apart without
// reading all of them, and is the same however the tensors are sharded.
void HfFolder::take_hash(std::span<const std::string> settings) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  const auto add = [&](const void* data, std::size_t size) {
    XXH3_64bits_update(state, &size, sizeof(size));
    XXH3_64bits_update(state, data, size);
  };
  for (const std::string& text : settings) {
    add(text.data(), text.size());
  }
  for (const auto& [name, stored] : shards_.tensors()) {
    const auto& data = stored.tensor.data;
    const std::size_t sample = std::min(kShardSampleBytes, data.size());
    add(name.data(), name.size());
    add(&stored.tensor.type, sizeof(stored.tensor.type));
    add(stored.tensor.shape.data(), stored.tensor.shape.size() * sizeof(std::uint64_t));
    for (const std::size_t at :
         {std::size_t{0}, (data.size() - sample) / 2, data.size() - sample}) {
      add(data.data() + at, sample);
    }
  }
  hash_ = XXH3_64bits_digest(state);
  XXH3_freeState(state);
}

ModelTensor HfFolder::float_vector(std::span<const float> values) {
  const std::size_t bytes = values.size_bytes();
  std::shared_ptr<std::byte[]> owner(new std::byte[bytes]);
  std::memcpy(owner.get(), values.data(), bytes);
  return {WeightView{DType::F32, 1, values.size(), {owner.get(), bytes}}, owner};
}

// Norms and biases are float32 to the passes.
Result<ModelTensor> HfFolder::vector_of(const ShardTensor& stored, const HfSource& source) const {
  const SafeTensor& tensor = stored.tensor;
  std::vector<float> values(tensor.elements());
  kernels::dequantise_row(
      *float_type(tensor.type), tensor.data.data(), values.size(), values.data());
  if (source.add_one) {
    for (float& value : values) {
      value += 1.0F;
    }
  }
  if (source.heads > 0 && values.size() % (std::size_t{source.heads} * 2) == 0) {
    const auto from = paired_rows(values.size(), source.heads);
    std::vector<float> paired(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      paired[i] = values[from[i]];
    }
    values = std::move(paired);
  }
  return float_vector(values);
}

Result<ModelTensor> HfFolder::read(const HfSource& source) const {
  const auto bad = [&](std::string_view file, std::string_view why) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: tensor {}: {}", file, engine::quoted(source.name()), why));
  };
  const auto rows_of = [&](std::uint64_t rows) -> Result<std::vector<std::uint32_t>> {
    if (source.heads == 0) {
      return std::vector<std::uint32_t>{};
    }
    if (rows > (1U << 24U) || rows % (std::uint64_t{source.heads} * 2) != 0) {
      return bad(path_, fmt::format("{} rows do not make {} heads", rows, source.heads));
    }
    return paired_rows(rows, source.heads);
  };
  const ShardTensor* stored = shards_.find(source.name());
  if (stored == nullptr) {
    const Int4Matrix& matrix = int4_.find(source.base)->second;
    const Int4Plan& plan = matrix.plan;
    BATON_ASSIGN(const auto from, rows_of(plan.rows));
    BATON_ASSIGN(auto owner, convert_int4(*config_.int4, matrix.parts, plan, from));
    const std::size_t bytes = plan.rows * kernels::row_bytes(plan.dtype, plan.cols);
    return ModelTensor{WeightView{plan.dtype, plan.rows, plan.cols, {owner.get(), bytes}}, owner};
  }
  const SafeTensor& tensor = stored->tensor;
  const auto type = float_type(tensor.type);
  if (!type) {
    return bad(stored->file,
               fmt::format("element type {} is not supported; known: F32, F16, BF16",
                           to_string(tensor.type)));
  }
  if (tensor.shape.size() == 1) {
    return vector_of(*stored, source);
  }
  if (tensor.shape.size() != 2) {
    return bad(stored->file, fmt::format("{} dimensions, expected 1 or 2", tensor.shape.size()));
  }
  ModelTensor out{WeightView{*type, tensor.shape[0], tensor.shape[1], tensor.data}, nullptr};
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(tensor.data.data()) % bytes_of(tensor.type) == 0;
  if (source.heads == 0 && aligned) {
    return out;
  }
  BATON_ASSIGN(const auto from, rows_of(out.rows));
  std::shared_ptr<std::byte[]> owner(new (std::nothrow) std::byte[tensor.data.size()]);
  if (owner == nullptr) {
    return fail(ErrorCode::OutOfMemory, fmt::format("no memory to reorder {}", source.name()));
  }
  const std::size_t row_bytes = kernels::row_bytes(*type, out.cols);
  for (std::size_t row = 0; row < out.rows; ++row) {
    const std::size_t stored_row = from.empty() ? row : from[row];
    std::memcpy(
        owner.get() + row * row_bytes, tensor.data.data() + stored_row * row_bytes, row_bytes);
  }
  out.data = {owner.get(), tensor.data.size()};
  out.owner = std::move(owner);
  return out;
}

Result<TokenizerSpec> HfFolder::tokenizer_spec() const {
  HfTokenizerFiles files;
  BATON_ASSIGN(files.tokenizer, read_text_file(in(path_, "tokenizer.json"), kMaxTokenizerBytes));
  BATON_ASSIGN(files.config, optional_text(in(path_, "tokenizer_config.json"), kMaxConfigBytes));
  BATON_ASSIGN(files.chat_template,
               optional_text(in(path_, "chat_template.jinja"), kMaxTemplateBytes));
  files.folder = path_;
  files.architecture = config_.architecture;
  files.vocab_size = config_.vocab_size;
  files.eos_ids = config_.eos_ids;
  BATON_ASSIGN(const auto generation,
               optional_text(in(path_, "generation_config.json"), kMaxConfigBytes));
  if (generation) {
    BATON_ASSIGN(const auto doc, JsonDoc::parse(*generation, in(path_, "generation_config.json")));
    BATON_ASSIGN(auto ids, read_eos_ids(doc.root()));
    if (!ids.empty()) {
      files.eos_ids = std::move(ids);
    }
  }
  return read_tokenizer_json(files);
}

}  // namespace

Result<std::unique_ptr<const ModelFile>> open_hf_folder(const std::string& path) {
  BATON_TRY(check_files(path));
  std::vector<std::string> settings;
  BATON_ASSIGN(auto config_text, read_text_file(in(path, "config.json"), kMaxConfigBytes));
  settings.push_back(std::move(config_text));
  BATON_ASSIGN(const auto config_doc, JsonDoc::parse(settings[0], in(path, "config.json")));
  BATON_ASSIGN(auto quantize_text,
               optional_text(in(path, "quantize_config.json"), kMaxConfigBytes));
  std::optional<JsonDoc> quantize_doc;
  std::optional<JsonValue> quantize;
  if (quantize_text) {
    settings.push_back(std::move(*quantize_text));
    BATON_ASSIGN(quantize_doc, JsonDoc::parse(settings[1], in(path, "quantize_config.json")));
    quantize = quantize_doc->root();
  }
  BATON_ASSIGN(auto config, read_hf_config(config_doc.root(), quantize));
  BATON_ASSIGN(auto shards, Shards::open(path));
  auto folder = std::make_unique<HfFolder>(path, std::move(config), std::move(shards));
  BATON_TRY(folder->prepare(settings));
  return std::unique_ptr<const ModelFile>(std::move(folder));
}

}  // namespace baton::engine
