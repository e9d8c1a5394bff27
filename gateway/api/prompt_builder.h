// From a checked API request to what nodes compute: template, tokens, limits, stop tokens.
//
// Thread: pure function; long prompts are built off the I/O threads. Failure: an ApiError (prompt
// too long, a token id outside the vocabulary, a template that refuses the messages).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/types/request.h"
#include "gateway/cluster/served_models.h"
#include "gateway/openai/openai_request.h"

namespace baton::gateway {

// Prompt number `i`, or the chat, as tokens. `add_special`: with what stands before every text;
// chat templates have their own. Takes the messages of a chat.
ApiResult<std::vector<TokenId>> tokenize_prompt(ApiRequest& api,
                                                const ServedModel& model,
                                                std::size_t i,
                                                std::int64_t unix_seconds,
                                                bool add_special);

ApiError outside_vocabulary(std::string param, TokenId token, const ServedModel& model);

// The clock of replies and of templates that print the date.
std::int64_t unix_seconds();

// One request for each choice: all of the first prompt, then all of the next. Ids, and the seed
// where the client gave none, are drawn from `random`. Templates may print the date of
// `unix_seconds`. Takes the messages of a chat.
ApiResult<std::vector<GenerateRequest>> build_requests(ApiRequest& api,
                                                       const ServedModel& model,
                                                       const RandomSource& random,
                                                       std::int64_t unix_seconds);

}  // namespace baton::gateway
