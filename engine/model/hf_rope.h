// The rotary part of config.json: at which frequencies positions turn, and how they are stretched
// to a context longer than the one that the model was trained on.
//
// Thread: pure function. Failure: InvalidModel with the file and the key.
#pragma once

#include <cstdint>

#include "common/base/error.h"
#include "common/json/json_doc.h"
#include "engine/model/hf_config.h"

namespace baton::engine {

// Adds to `out`, whose family, architecture and head_dim are set. `context`: what the file asks
// for; `theta`: the base where the file tells none.
Status read_rope(const JsonValue& text, std::uint32_t context, double theta, HfConfig& out);

}  // namespace baton::engine
