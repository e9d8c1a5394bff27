// Bodies of POST /v1/responses: texts, calls of functions and their outputs in; text, JSON of a
// schema or calls out. Tools that would run on the server, conversations kept as objects, and work
// in the background are refused by name.
//
// Thread: pure function. Failure: an ApiError that names the field.
#pragma once

#include <string_view>

#include "gateway/openai/openai_request.h"

namespace baton::gateway {

// `instructions` and earlier turns are not among the messages yet: see ResponsesFields.
ApiResult<ApiRequest> parse_responses_request(const std::string& body);

}  // namespace baton::gateway
