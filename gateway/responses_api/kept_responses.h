// What /v1/responses keeps for clients that ask for it: the turns of a conversation before a
// request is tokenized, the finished answer after it, and GET and DELETE of it. An answer belongs
// to the key that asked for it; to others it does not exist.
//
// Thread: any; `reply_kept` on the exchange's I/O thread. Failure: 400 or 404 that name the field.
#pragma once

#include <string>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "gateway/http/http_exchange.h"
#include "gateway/openai/openai_request.h"
#include "gateway/responses_api/event_writer.h"
#include "gateway/responses_api/response_store.h"

namespace baton::gateway {

// Instructions, earlier turns and input become the request's messages. Returns those that are to be
// kept with the answer; none when it is not to be kept.
ApiResult<std::vector<engine::ChatMessage>> assemble_turns(const ResponseStore& store,
                                                           const std::string& owner,
                                                           ApiRequest& api);

// Keeps the answer `id` behind its turns. `store` outlives it.
ResponseEventWriter::Keep keep_answer(ResponseStore& store,
                                      std::string owner,
                                      std::string id,
                                      std::vector<engine::ChatMessage> turns);

// GET or DELETE of /v1/responses/{id}.
void reply_kept(HttpExchange& exchange,
                ResponseStore& store,
                const std::string& owner,
                const std::string& id,
                const std::string& request_id);

}  // namespace baton::gateway
