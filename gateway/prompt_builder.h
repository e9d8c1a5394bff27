// From a checked API request to what nodes compute: template, tokens, limits, stop tokens.
//
// Thread: pure function; long prompts are built off the I/O threads. Failure: an ApiError (prompt
// too long, a token id outside the vocabulary, a template that refuses the messages).
#pragma once

#include <cstdint>

#include "common/types/request.h"
#include "gateway/openai_request.h"
#include "gateway/served_models.h"

namespace baton::gateway {

// `id` and `fallback_seed` are drawn by the caller; the seed is used when the client gave none.
// Templates may print the date of `unix_seconds`.
ApiResult<GenerateRequest> build_request(const ApiRequest& api,
                                         const ServedModel& model,
                                         RequestId id,
                                         std::uint64_t fallback_seed,
                                         std::int64_t unix_seconds);

}  // namespace baton::gateway
