// What a client wants its answer to be: `response_format` of chats, `text.format` of
// /v1/responses, and the fields of vLLM (`structured_outputs`, `guided_json`, …). Only read here;
// GrammarChecker says whether it can be held to.
//
// Thread: pure function. Failure: the first error goes into `fields`.
#pragma once

#include <string>

#include "common/types/request.h"
#include "gateway/openai/json_fields.h"

namespace baton::gateway {

struct StructuredOutput {
  Grammar grammar;    // kind None: text
  std::string param;  // the field that it came from, for messages
};

StructuredOutput read_structured_output(JsonFields& fields);
// The value of `text.format`: its schema stands in it, not below "json_schema".
StructuredOutput read_text_format(const JsonElement& format, JsonFields& fields);

}  // namespace baton::gateway
