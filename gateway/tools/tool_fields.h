// Reading steps that tools in a request and calls in its messages have in common.
//
// Thread: pure functions. Failure: an ApiError that names the field.
#pragma once

#include <optional>
#include <string>

#include "gateway/openai/json_fields.h"

namespace baton::gateway {

ApiError missing_field(const std::string& path);
// The object at `path`; absent is an error.
ApiResult<simdjson::dom::object> object_at(const std::optional<JsonElement>& value,
                                           const std::string& path);
// "type" must be there and be "function".
ApiResult<void> check_function_type(JsonFields& fields, const std::string& path);

}  // namespace baton::gateway
