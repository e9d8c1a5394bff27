// The fields that say how tokens are chosen, what is told of them, and where the text stops.
//
// Thread: pure functions. Failure: the fields' first error.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "gateway/openai/json_fields.h"
#include "gateway/openai/openai_request.h"

namespace baton::gateway {

void read_sampling(JsonFields& fields, ApiRequest& request);
void read_logprobs(JsonFields& fields, ApiRequest& request);
// Log-probabilities of the prompt, after prompts, logprobs and stream.
void read_scoring(JsonFields& fields, ApiRequest& request);
void read_stop(JsonFields& fields, ApiRequest& request);

// At most `limit` ids. Whether the vocabulary has them is checked where the model is known.
void read_token_ids(JsonFields& fields,
                    std::string_view name,
                    const JsonElement& value,
                    std::size_t limit,
                    std::vector<TokenId>& into);

}  // namespace baton::gateway
