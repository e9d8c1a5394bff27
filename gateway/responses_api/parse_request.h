// Bodies of POST /v1/responses: text in, text out. What calls tools, keeps conversations on the
// server, or runs in the background is refused by name.
//
// Thread: pure function. Failure: an ApiError that names the field.
#pragma once

#include <string_view>

#include "gateway/openai_request.h"

namespace baton::gateway {

// `instructions` and earlier turns are not among the messages yet: see ResponsesFields.
ApiResult<ApiRequest> parse_responses_request(std::string_view body);

}  // namespace baton::gateway
