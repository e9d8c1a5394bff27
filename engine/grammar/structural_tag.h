// A structural tag says in JSON where which schema, expression, rule set or text stands in an
// output; tool calls are written so. Everything a client has put into one is checked as it would be
// alone, and its schemas are written anew.
//
// Thread: pure function. Failure: InvalidArgument.
#pragma once

#include <string_view>

#include "common/base/error.h"
#include "engine/grammar/json_schema.h"

namespace baton::engine {

// The tag, and the patterns of its schemas.
Result<NormalSchema> normalise_structural_tag(std::string_view text);

}  // namespace baton::engine
