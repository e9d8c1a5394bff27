// A GGUF model file, mapped read-only. Every count, offset, size and type is checked before use;
// nothing is copied but small metadata. Source: the GGUF file format, versions 2 and 3.
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

class ModelFile {
 public:
  static Result<std::unique_ptr<const ModelFile>> open(const std::string& path);
  virtual ~ModelFile() = default;

  virtual std::string_view architecture() const = 0;
  // Metadata values; absent or of another type: nullopt.
  virtual std::optional<std::uint64_t> get_uint(std::string_view key) const = 0;
  virtual std::optional<double> get_float(std::string_view key) const = 0;
  virtual std::optional<bool> get_bool(std::string_view key) const = 0;
  virtual std::optional<std::string_view> get_string(std::string_view key) const = 0;
  // Borrowed for the life of the file; absent: NotFound that names it.
  virtual Result<kernels::WeightView> tensor(std::string_view name) const = 0;
  virtual bool has_tensor(std::string_view name) const = 0;
  virtual std::uint64_t weights_hash() const = 0;
  // What the model computes, bounded; an unknown architecture is refused by name.
  virtual Result<DecoderSpec> decoder_spec() const = 0;
  virtual Result<TokenizerSpec> tokenizer_spec() const = 0;
};

}  // namespace baton::engine
