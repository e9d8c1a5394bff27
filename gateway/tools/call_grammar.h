// The grammar of an answer that must call a tool, or else follow another grammar: the model's own
// format, around arguments that follow the tool's schema.
//
// Thread: pure function. Failure: none; whether the grammar can be held to is the grammar's check.
#pragma once

#include <string>

#include "common/types/request.h"
#include "gateway/tools/tool_format.h"
#include "gateway/tools/tool_request.h"

namespace baton::gateway {

struct CallGrammarOptions {
  bool one_call = false;
  bool reasoning = false;       // the model may think first
  bool reasoning_open = false;  // it does already: the prompt ends inside of a <think> tag
  Grammar otherwise;            // what the answer may be instead of calls; kind None: nothing
};

// As a structural tag (Grammar::Kind::StructuralTag). REQUIRES: `tools` is not empty.
std::string call_grammar(ToolFormat format,
                         const ToolRequest& tools,
                         const CallGrammarOptions& options);

}  // namespace baton::gateway
