// The `messages` array of a chat request.
//
// Thread: pure function. Failure: an ApiError that names the message and the field.
#pragma once

#include <vector>

#include "engine/chat_template/chat_template.h"
#include "gateway/openai/json_fields.h"

namespace baton::gateway {

ApiResult<void> read_messages(const JsonElement& value, std::vector<engine::ChatMessage>& into);

}  // namespace baton::gateway
