// From messages to token ids: renders the template with the model's own bos and eos text and
// tokenizes the pieces, so that exactly one BOS stands at the start of models that want one.
//
// With continue_final_message the prompt ends where the content of the last message ends.
//
// Thread: pure. Failure: as ChatTemplate::render, also for a template that does not print the last
// message as it is; ContextTooLong when the text has more than
// `max_tokens` for certain, which spares tokenizing it.
#pragma once

#include <vector>

#include "engine/chat_template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {

// `input.bos_token` and `eos_token` are filled in from the tokenizer.
Result<std::vector<TokenId>> encode_chat(const ChatTemplate& chat_template,
                                         const Tokenizer& tokenizer,
                                         ChatTemplateInput input,
                                         std::size_t max_tokens);

}  // namespace baton::engine
