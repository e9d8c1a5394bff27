// The tensors of all safetensors files of a folder: model.safetensors, or the shards that
// model.safetensors.index.json names.
//
// Owner: the mappings, which every view points into. Thread: const after opening. Failure:
// NotFound that names every missing file, InvalidModel with file and place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "engine/model/mapping.h"
#include "engine/model/safetensors.h"

namespace baton::engine {

struct ShardTensor {
  SafeTensor tensor;
  std::string file;  // for messages
};

class Shards {
 public:
  static constexpr const char* kSingle = "model.safetensors";
  static constexpr const char* kIndex = "model.safetensors.index.json";

  static Result<Shards> open(const std::string& folder);

  // By name, each from one shard only.
  std::map<std::string, ShardTensor, std::less<>>& tensors() { return tensors_; }
  const std::map<std::string, ShardTensor, std::less<>>& tensors() const { return tensors_; }
  // Nullptr: no such tensor.
  const ShardTensor* find(std::string_view name) const;

 private:
  Status add(const std::string& path);

  std::vector<Mapping> mappings_;
  std::map<std::string, ShardTensor, std::less<>> tensors_;
};

}  // namespace baton::engine
