// Reads a DecoderSpec from GGUF metadata.
//
// Thread: one. Failure: InvalidModel that names the key, the tensor or the unknown architecture.
#pragma once

#include "common/base/error.h"
#include "engine/model/decoder_spec.h"
#include "engine/model/model_file.h"

namespace baton::engine {

Result<DecoderSpec> read_gguf_spec(const ModelFile& file);

}  // namespace baton::engine
