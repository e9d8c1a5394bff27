// What tools and reasoning mean for one chat request to one model: for its prompt, and for reading
// its answer.
//
// Thread: pure functions. Failure: an ApiError when the model's way of calling tools is not known.
#pragma once

#include <span>

#include "engine/chat_template/chat_template.h"
#include "gateway/api/grammar_checker.h"
#include "gateway/cluster/served_models.h"
#include "gateway/openai/openai_request.h"
#include "gateway/tools/answer_text.h"

namespace baton::gateway {

// Fills in tools and messages; takes those of `api`.
ApiResult<void> write_messages(ApiRequest& api,
                               const ServedModel& model,
                               engine::ChatTemplateInput& input);

// What the answer must be: what the client asked for, or calls, or either; kind None when it is
// free. A tool that is not strict, and whose schema no grammar can hold to, gets any arguments that
// are an object.
ApiResult<Grammar> answer_grammar(const ApiRequest& api,
                                  const ServedModel& model,
                                  std::span<const TokenId> prompt,
                                  GrammarChecker& grammars);

AnswerTextOptions answer_options(const ApiRequest& api,
                                 const ServedModel& model,
                                 std::span<const TokenId> prompt);

}  // namespace baton::gateway
