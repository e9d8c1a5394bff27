// Fields that say who asks, for what, and with what urgency: the text of the answer does not depend
// on them.
//
// Thread: pure function. Failure: the fields' first error.
#pragma once

#include "gateway/openai/json_fields.h"
#include "gateway/openai/openai_request.h"

namespace baton::gateway {

void read_client(JsonFields& fields, ApiRequest& request);

}  // namespace baton::gateway
