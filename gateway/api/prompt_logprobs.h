// Log-probabilities of a prompt as clients are told of them: in vLLM's field `prompt_logprobs`, or
// as entries before those of the completion, where the prompt is echoed.
//
// Thread: pure functions. Failure: none; what a node left out is left out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/types/token_event.h"
#include "engine/tokenizer/tokenizer.h"
#include "gateway/api/answer_writer.h"

namespace baton::gateway {

// [null,{"id":{"logprob":…,"rank":…,"decoded_token":…},…},…]: null for the first token, then the
// token itself and at most `alternatives` of the likeliest. The rank of a token that is not among
// these is null.
std::string prompt_logprobs_json(const TokenEvent& event,
                                 const engine::Tokenizer& tokenizer,
                                 std::uint32_t alternatives);

// One entry for each token of the prompt; the first has no log-probability.
std::vector<TextLogprob> prompt_entries(const TokenEvent& event,
                                        const engine::Tokenizer& tokenizer,
                                        std::span<const TokenId> prompt,
                                        std::uint32_t alternatives);

}  // namespace baton::gateway
