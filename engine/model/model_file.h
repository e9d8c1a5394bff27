// A model on disk, mapped read-only: a GGUF file (versions 2 and 3) or a Hugging Face folder of
// safetensors (hf_folder.h). Both answer by GGUF's names of keys and tensors. Every count, offset,
// size and type is checked before use; weights are views where the file's layout allows it.
//
// Thread: const after opening. Failure: InvalidModel with the file and the place (key or tensor
// name, byte offset).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "engine/model/decoder_spec.h"
#include "engine/tokenizer/tokenizer.h"
#include "kernels/ops.h"

namespace baton::engine {

// A tensor's elements, borrowed from the file or, where they had to be converted, from `owner`.
struct ModelTensor : kernels::WeightView {
  std::shared_ptr<const void> owner;  // null: the file's own bytes
};

class ModelFile {
 public:
  // `path`: a GGUF file or a folder.
  static Result<std::unique_ptr<const ModelFile>> open(const std::string& path);
  virtual ~ModelFile() = default;

  virtual std::string_view architecture() const = 0;
  // Metadata values; absent or of another type: nullopt.
  virtual std::optional<std::uint64_t> get_uint(std::string_view key) const = 0;
  virtual std::optional<double> get_float(std::string_view key) const = 0;
  virtual std::optional<bool> get_bool(std::string_view key) const = 0;
  virtual std::optional<std::string_view> get_string(std::string_view key) const = 0;
  // Valid as long as the file and the result; absent: NotFound that names it.
  virtual Result<ModelTensor> tensor(std::string_view name) const = 0;
  virtual bool has_tensor(std::string_view name) const = 0;
  virtual std::uint64_t weights_hash() const = 0;
  // What the model computes, bounded; an unknown architecture is refused by name.
  virtual Result<DecoderSpec> decoder_spec() const = 0;
  virtual Result<TokenizerSpec> tokenizer_spec() const = 0;
  // What an operator should know of how the file is read, a sentence each.
  virtual std::vector<std::string> notes() const { return {}; }
};

}  // namespace baton::engine
