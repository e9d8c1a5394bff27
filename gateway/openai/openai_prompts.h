// The prompts of /v1/completions and how many choices of each are asked for.
//
// Thread: pure functions. Failure: the fields' first error, which names the place ("prompt[2][7]").
#pragma once

#include "gateway/openai/json_fields.h"
#include "gateway/openai/openai_request.h"

namespace baton::gateway {

// A string, strings, token ids, or lists of them; and `echo`.
void read_prompts(JsonFields& fields, ApiRequest& request);
// `n` and `best_of`, after the prompts.
void read_choices(JsonFields& fields, ApiRequest& request);

}  // namespace baton::gateway
