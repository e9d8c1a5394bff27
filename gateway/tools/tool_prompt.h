// For models whose chat template knows nothing of tools: tells of them in the system message, and
// writes calls and results of earlier turns as text.
//
// Thread: pure function. Failure: none; the messages were checked when they were read.
#pragma once

#include <vector>

#include "engine/chat_template/chat_template.h"
#include "gateway/tools/tool_format.h"
#include "gateway/tools/tool_request.h"

namespace baton::gateway {

// REQUIRES: `format` is not Off or Unknown. Messages without any part in tools stay as they are.
void write_tools_as_text(ToolFormat format,
                         const ToolRequest& tools,
                         std::vector<engine::ChatMessage>& messages);

// Mistral's templates refuse ids that are not nine characters long: puts such in their place.
void shorten_call_ids(std::vector<engine::ChatMessage>& messages);

}  // namespace baton::gateway
