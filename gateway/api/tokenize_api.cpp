#include "gateway/api/tokenize_api.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "common/json/json_escape.h"
#include "gateway/api/json_body.h"
#include "gateway/api/prompt_builder.h"
#include "gateway/api/replies.h"
#include "gateway/cluster/rollout.h"
#include "gateway/openai/json_fields.h"
#include "gateway/openai/openai_request.h"
#include "gateway/openai/openai_sampling.h"
#include "gateway/openai/responses.h"

namespace baton::gateway {

void TokenizeApi::tokenize(const std::shared_ptr<HttpExchange>& exchange, const Caller& caller) {
  answer(exchange, caller, &TokenizeApi::tokens_of);
}

void TokenizeApi::detokenize(const std::shared_ptr<HttpExchange>& exchange, const Caller& caller) {
  answer(exchange, caller, &TokenizeApi::text_of);
}

void TokenizeApi::answer(const std::shared_ptr<HttpExchange>& exchange,
                         const Caller& caller,
                         Work work) {
  const std::string id = request_id_for(exchange->request(), deps_.random());
  take_json_body(exchange,
                 deps_.pool,
                 deps_.random,
                 [this, exchange, caller, work, id](const std::string& body) -> Task {
                   return [exchange, id, result = (this->*work)(body, caller)]() mutable {
                     if (result) {
                       reply_json(*exchange, 200, std::move(*result), id);
                     } else {
                       reply_error(*exchange, result.error(), id);
                     }
                   };
                 });
}

ApiResult<FoundModel> TokenizeApi::model_for(const std::string& id, const Caller& caller) const {
  std::string name = id;
  if (name.empty()) {
    const auto all = deps_.models.get();
    if (all->size() > 1) {
      return std::unexpected(bad_request(
          "missing_required_parameter", "model", "Missing required parameter: 'model'."));
    }
    name = all->empty() ? deps_.configured_model : all->begin()->first;
  }
  if (!caller.may_use_model(name)) {
    return std::unexpected(model_not_found(name));
  }
  return find_model(deps_.models, name, deps_.configured_model, session_of(name));
}

ApiResult<std::string> TokenizeApi::tokens_of(const std::string& body, const Caller& caller) const {
  auto api = parse_tokenize_request(body);
  if (!api) {
    return std::unexpected(std::move(api).error());
  }
  auto found = model_for(api->prompt.model, caller);
  if (!found) {
    return std::unexpected(std::move(found).error());
  }
  auto ids = tokenize_prompt(api->prompt, *found->model, 0, unix_seconds(), api->add_special);
  if (!ids) {
    return std::unexpected(std::move(ids).error());
  }
  std::string out = fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":[{}],",
                                ids->size(),
                                found->model->max_tokens,
                                fmt::join(*ids, ","));
  if (!api->wants_strings) {
    return out + "\"token_strs\":null}";
  }
  out += "\"token_strs\":[";
  for (std::size_t i = 0; i < ids->size(); ++i) {
    out += i == 0 ? "" : ",";
    append_json_string(
        out, printable_token(found->model->artifacts->tokenizer->token_bytes((*ids)[i], true)));
  }
  return out + "]}";
}

ApiResult<std::string> TokenizeApi::text_of(const std::string& body, const Caller& caller) const {
  JsonBody json;
  auto object = json.parse(body);
  if (!object) {
    return std::unexpected(std::move(object).error());
  }
  static constexpr auto kFields = std::to_array<std::string_view>({"model", "tokens"});
  JsonFields fields(*object, kFields);
  std::string model;
  std::vector<TokenId> ids;
  fields.read("model", model);
  if (const auto tokens = fields.get("tokens")) {
    read_token_ids(fields, "tokens", *tokens, std::numeric_limits<std::size_t>::max(), ids);
  } else {
    fields.fail(bad_request(
        "missing_required_parameter", "tokens", "Missing required parameter: 'tokens'."));
  }
  if (fields.error()) {
    return std::unexpected(*fields.error());
  }
  auto found = model_for(model, caller);
  if (!found) {
    return std::unexpected(std::move(found).error());
  }
  engine::Detokenizer detokenizer(*found->model->artifacts->tokenizer, true);
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<std::uint32_t>(ids[i]) >= found->model->vocab_size) {
      return std::unexpected(
          outside_vocabulary(fmt::format("tokens[{}]", i), ids[i], *found->model));
    }
    text += detokenizer.push(ids[i]);
  }
  text += detokenizer.flush();
  std::string out = "{\"prompt\":";
  append_json_string(out, text);
  return out + '}';
}

}  // namespace baton::gateway
