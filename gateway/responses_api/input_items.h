// The `input` of /v1/responses, and the answers that clients send back in it, as messages for a
// chat template: texts of every role, calls of functions and their results. Items of reasoning are
// left out: templates drop reasoning of earlier turns.
//
// Thread: pure function. Failure: the first error goes into `fields` and names the item.
#pragma once

#include <vector>

#include "engine/chat_template/chat_template.h"
#include "gateway/openai/json_fields.h"

namespace baton::gateway {

std::vector<engine::ChatMessage> read_input_items(JsonFields& fields);

}  // namespace baton::gateway
