// A Hugging Face model directory as a ModelFile: config.json, safetensors shards mapped read-only,
// tokenizer.json and what belongs to it. Tensors and settings are given under the names that GGUF
// files have, so that the forward passes do not know which of the two they read.
//
// Matrices of float32, F16 and BF16 are views into the shards. What must be converted (norms,
// 4-bit weights, q and k of Llama) is made when asked for and owned by the caller.
//
// Thread: const after opening. Failure: InvalidModel or NotFound with the file and the place.
#pragma once

#include <memory>
#include <string>

#include "common/base/error.h"
#include "engine/model/model_file.h"

namespace baton::engine {

Result<std::unique_ptr<const ModelFile>> open_hf_folder(const std::string& path);

}  // namespace baton::engine
