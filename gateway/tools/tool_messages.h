// What messages of earlier turns say of tools: calls of the assistant and results of tools.
//
// Thread: pure function. Failure: an ApiError that names the field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "gateway/openai/json_fields.h"

namespace baton::gateway {

// Checks `tool_calls` of an assistant's message and `tool_call_id` of a tool's result. Appends to
// `extra_json` what templates read, with arguments as objects, as they expect them.
ApiResult<void> read_tool_fields(const JsonFields& message,
                                 const std::string& path,
                                 std::string_view role,
                                 std::string& extra_json);

// A call as it stands in `tool_calls`: with its arguments, a JSON object as text at `path`, as an
// object.
ApiResult<std::string> tool_call_json(std::string_view id,
                                      std::string_view name,
                                      const std::string& arguments,
                                      const std::string& path);
// ChatMessage::extra_json of a message with these calls, commas between.
std::string tool_calls_json(std::string_view calls);

// Some templates want the function's name with its result: taken from the call of the same id.
void name_tool_results(std::vector<engine::ChatMessage>& messages);

}  // namespace baton::gateway
