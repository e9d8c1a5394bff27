#include "gateway/responses_api/kept_responses.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "common/json/json_escape.h"
#include "gateway/api/replies.h"
#include "gateway/openai/json_fields.h"
#include "gateway/tools/tool_messages.h"

namespace baton::gateway {
namespace {

std::shared_ptr<const StoredResponse> find(const ResponseStore& store,
                                           const std::string& owner,
                                           const std::string& id) {
  auto found = store.get(id);
  return found != nullptr && found->owner == owner ? found : nullptr;
}

ApiError not_kept(const ResponseStore& store, std::string code, std::string param) {
  ApiError error = bad_request(
      std::move(code),
      std::move(param),
      store.is_on() ? "No response of this id is kept here."
                    : "This server keeps no responses: gateway.store_responses_mb is 0.");
  error.status = 404;
  return error;
}

}  // namespace

ApiResult<std::vector<engine::ChatMessage>> assemble_turns(const ResponseStore& store,
                                                           const std::string& owner,
                                                           ApiRequest& api) {
  const ResponsesFields& fields = api.responses;
  if ((fields.store || !fields.previous_id.empty()) && !store.is_on()) {
    return std::unexpected(unsupported(
        fields.store ? "store" : "previous_response_id",
        "This server keeps no responses (gateway.store_responses_mb is 0); send the whole "
        "conversation as 'input'."));
  }
  if (!fields.previous_id.empty()) {
    const auto previous = find(store, owner, fields.previous_id);
    if (previous == nullptr) {
      return std::unexpected(
          not_kept(store, "previous_response_not_found", "previous_response_id"));
    }
    api.messages.insert(api.messages.begin(), previous->messages.begin(), previous->messages.end());
  }
  name_tool_results(api.messages);  // of calls of earlier turns, too
  std::vector<engine::ChatMessage> kept;
  if (fields.store) {
    kept = api.messages;
  }
  if (!fields.instructions.empty()) {
    api.messages.insert(api.messages.begin(), {"system", fields.instructions, "", ""});
  }
  return kept;
}

ResponseEventWriter::Keep keep_answer(ResponseStore& store,
                                      std::string owner,
                                      std::string id,
                                      std::vector<engine::ChatMessage> turns) {
  return [&store, owner = std::move(owner), id = std::move(id), turns = std::move(turns)](
             const std::string& json, engine::ChatMessage turn) mutable {
    turns.push_back(std::move(turn));
    store.put(id, {std::move(owner), json, std::move(turns)});
  };
}

void reply_kept(HttpExchange& exchange,
                ResponseStore& store,
                const std::string& owner,
                const std::string& id,
                const std::string& request_id) {
  const bool deletes = exchange.request().method == "DELETE";
  const auto kept = find(store, owner, id);
  if (kept == nullptr || (deletes && !store.erase(id))) {
    return reply_error(exchange, not_kept(store, "not_found", "response_id"), request_id);
  }
  if (!deletes) {
    return reply_json(exchange, 200, kept->json, request_id);
  }
  std::string body = "{\"id\":";
  append_json_string(body, id);
  reply_json(exchange, 200, body + ",\"object\":\"response\",\"deleted\":true}", request_id);
}

}  // namespace baton::gateway
