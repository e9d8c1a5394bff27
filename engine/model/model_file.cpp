// ModelFile over a read-only mapping of a GGUF file; a folder is handed on.
#include "engine/model/model_file.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "engine/model/gguf.h"
#include "engine/model/gguf_spec.h"
#include "engine/model/hf_folder.h"
#include "engine/model/mapping.h"

namespace baton::engine {
namespace {

constexpr std::size_t kSampleBytes = 4096;

// Header, size, and the first and last bytes of every tensor: tells files apart without reading
// all of them.
std::uint64_t hash_of(const GgufFile& gguf, std::span<const std::byte> bytes) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, bytes.data(), gguf.data_offset);
  const std::uint64_t size = bytes.size();
  XXH3_64bits_update(state, &size, sizeof(size));
  for (const auto& [name, tensor] : gguf.tensors) {
    const std::size_t sample = std::min(kSampleBytes, tensor.data.size());
    XXH3_64bits_update(state, tensor.data.data(), sample);
    XXH3_64bits_update(state, tensor.data.data() + tensor.data.size() - sample, sample);
  }
  const std::uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

class GgufModelFile final : public ModelFile {
 public:
  GgufModelFile(Mapping mapping, GgufFile gguf, std::string path)
      : mapping_(std::move(mapping)),
        gguf_(std::move(gguf)),
        path_(std::move(path)),
        hash_(hash_of(gguf_, mapping_.bytes())) {}

  std::string_view architecture() const override {
    return get_string("general.architecture").value_or("");
  }

  std::optional<std::uint64_t> get_uint(std::string_view key) const override {
    if (const auto* u = get<std::uint64_t>(key)) {
      return *u;
    }
    if (const auto* i = get<std::int64_t>(key); i != nullptr && *i >= 0) {
      return static_cast<std::uint64_t>(*i);
    }
    return std::nullopt;
  }
  std::optional<double> get_float(std::string_view key) const override {
    return copy_of<double>(key);
  }
  std::optional<bool> get_bool(std::string_view key) const override { return copy_of<bool>(key); }
  std::optional<std::string_view> get_string(std::string_view key) const override {
    return copy_of<std::string_view>(key);
  }

  Result<ModelTensor> tensor(std::string_view name) const override {
    const auto it = gguf_.tensors.find(name);
    if (it == gguf_.tensors.end()) {
      return fail(ErrorCode::NotFound, fmt::format("{}: no tensor {}", path_, quoted(name)));
    }
    return ModelTensor{it->second, nullptr};
  }
  bool has_tensor(std::string_view name) const override { return gguf_.tensors.contains(name); }
  std::uint64_t weights_hash() const override { return hash_; }

  Result<DecoderSpec> decoder_spec() const override { return read_gguf_spec(*this); }
  Result<TokenizerSpec> tokenizer_spec() const override;

 private:
  template <class T>
  const T* get(std::string_view key) const {
    const auto it = gguf_.values.find(key);
    return it == gguf_.values.end() ? nullptr : std::get_if<T>(&it->second);
  }
  template <class T>
  std::optional<T> copy_of(std::string_view key) const {
    const T* value = get<T>(key);
    return value == nullptr ? std::nullopt : std::optional<T>(*value);
  }
  std::unexpected<Error> bad(std::string_view key, std::string_view why) const {
    return fail(ErrorCode::InvalidModel, fmt::format("{}: key {}: {}", path_, quoted(key), why));
  }
  Result<TokenId> token_id(std::string_view key, std::size_t vocab_size) const;
  Status fill_vocabulary(TokenizerSpec& spec) const;

  Mapping mapping_;
  GgufFile gguf_;
  std::string path_;
  std::uint64_t hash_;
};

// -1 when the key is absent or says so (some files write 2^32 - 1 for "none").
Result<TokenId> GgufModelFile::token_id(std::string_view key, std::size_t vocab_size) const {
  const auto id = get_uint(key);
  if (!id || *id == std::numeric_limits<std::uint32_t>::max()) {
    return TokenId{-1};
  }
  if (*id >= vocab_size) {
    return bad(key, fmt::format("token {} is outside the vocabulary of {}", *id, vocab_size));
  }
  return static_cast<TokenId>(*id);
}

Status GgufModelFile::fill_vocabulary(TokenizerSpec& spec) const {
  const auto* tokens = get<GgufArray>("tokenizer.ggml.tokens");
  if (tokens == nullptr || !read_strings(*tokens, spec.tokens) || spec.tokens.empty()) {
    return bad("tokenizer.ggml.tokens", "missing, empty or not an array of strings");
  }
  if (spec.tokens.size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    return bad("tokenizer.ggml.tokens", "too many tokens");
  }
  if (const auto* scores = get<GgufArray>("tokenizer.ggml.scores")) {
    if (!read_floats(*scores, spec.scores) || spec.scores.size() != spec.tokens.size()) {
      return bad("tokenizer.ggml.scores", "must be one float32 a token");
    }
  }
  spec.kinds.assign(spec.tokens.size(), TokenKind::Normal);
  if (const auto* kinds = get<GgufArray>("tokenizer.ggml.token_type")) {
    std::vector<std::int64_t> numbers;
    if (!read_ints(*kinds, numbers) || numbers.size() != spec.tokens.size()) {
      return bad("tokenizer.ggml.token_type", "must be one integer a token");
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 1 || numbers[i] > 6) {
        return bad("tokenizer.ggml.token_type",
                   fmt::format("token {} has the unknown type {}", i, numbers[i]));
      }
      spec.kinds[i] = static_cast<TokenKind>(numbers[i]);
    }
  }
  if (const auto* merges = get<GgufArray>("tokenizer.ggml.merges")) {
    if (!read_strings(*merges, spec.merges)) {
      return bad("tokenizer.ggml.merges", "must be an array of strings");
    }
  }
  return {};
}

Result<TokenizerSpec> GgufModelFile::tokenizer_spec() const {
  TokenizerSpec spec;
  const auto model = get_string("tokenizer.ggml.model");
  if (!model) {
    return bad("tokenizer.ggml.model", "missing or not a string");
  }
  spec.model = *model;
  spec.pre_tokenizer = get_string("tokenizer.ggml.pre").value_or("default");
  spec.architecture = architecture();
  spec.chat_template = get_string("tokenizer.chat_template").value_or("");
  BATON_TRY(fill_vocabulary(spec));
  const std::size_t size = spec.tokens.size();
  BATON_ASSIGN(spec.bos, token_id("tokenizer.ggml.bos_token_id", size));
  BATON_ASSIGN(spec.eos, token_id("tokenizer.ggml.eos_token_id", size));
  BATON_ASSIGN(spec.eot, token_id("tokenizer.ggml.eot_token_id", size));
  BATON_ASSIGN(spec.unknown, token_id("tokenizer.ggml.unknown_token_id", size));
  // Files that leave the flag out mean the family's habit: SentencePiece models and Llama 3 begin
  // with BOS, other byte-level BPE models do not.
  const bool usual_bos = spec.model == "llama" || spec.pre_tokenizer == "llama-bpe";
  spec.add_bos = get_bool("tokenizer.ggml.add_bos_token").value_or(usual_bos) && spec.bos >= 0;
  spec.add_eos = get_bool("tokenizer.ggml.add_eos_token").value_or(false) && spec.eos >= 0;
  spec.add_space_prefix =
      get_bool("tokenizer.ggml.add_space_prefix").value_or(spec.model == "llama");
  return spec;
}

}  // namespace

Result<std::unique_ptr<const ModelFile>> ModelFile::open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return open_hf_folder(path);
  }
  BATON_ASSIGN(auto mapping, Mapping::open(path));
  BATON_ASSIGN(auto gguf, parse_gguf(mapping.bytes(), path));
  auto file = std::make_unique<GgufModelFile>(std::move(mapping), std::move(gguf), path);
  if (file->architecture().empty()) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: key \"general.architecture\" is missing or not a string", path));
  }
  return std::unique_ptr<const ModelFile>(std::move(file));
}

}  // namespace baton::engine
