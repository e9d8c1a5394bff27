#include "gateway/generate_api.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "gateway/answer.h"
#include "gateway/json_body.h"
#include "gateway/json_fields.h"
#include "gateway/prompt_builder.h"
#include "gateway/replies.h"
#include "gateway/responses.h"
#include "gateway/responses_api/event_writer.h"
#include "gateway/responses_api/parse_request.h"

namespace baton::gateway {
namespace {

std::string_view id_prefix(Endpoint endpoint) {
  return endpoint == Endpoint::Chat        ? "chatcmpl-"
         : endpoint == Endpoint::Responses ? "resp_"
                                           : "cmpl-";
}

// As it comes back with `echo`.
std::string prompt_text(const ApiPrompt& prompt, const ModelArtifacts& artifacts) {
  if (!prompt.is_ids) {
    return prompt.text;
  }
  engine::Detokenizer detokenizer(*artifacts.tokenizer, true);
  std::string text;
  for (const TokenId id : prompt.ids) {
    text += detokenizer.push(id);
  }
  return text + detokenizer.flush();
}

// Requests of one session find the cache of the nodes that served it; 0: of none.
std::uint64_t affinity_of(const ApiRequest& api) {
  return api.prompt_cache_key.empty() ? 0 : std::hash<std::string>{}(api.prompt_cache_key);
}

}  // namespace

void GenerateApi::handle(const Exchange& exchange, Endpoint endpoint) {
  take_json_body(exchange,
                 deps_.pool,
                 request_id_for(exchange->request(), deps_.random()),
                 [this, exchange, endpoint](const std::string& body) {
                   return prepare(exchange, endpoint, body);
                 });
}

Task GenerateApi::prepare(const Exchange& exchange, Endpoint endpoint, const std::string& body) {
  const auto refuse = [&](ApiError error) -> Task {
    return [this, exchange, error = std::move(error)] {
      reply_error(*exchange, error, request_id_for(exchange->request(), deps_.random()));
    };
  };
  auto api = [&] {
    const CpuTimer timer(deps_.cost.parse);
    return endpoint == Endpoint::Responses ? parse_responses_request(body)
                                           : parse_api_request(endpoint, body);
  }();
  if (!api) {
    return refuse(std::move(api).error());
  }
  std::vector<engine::ChatMessage> conversation;
  if (endpoint == Endpoint::Responses) {
    if (auto ready = assemble(*api, conversation); !ready) {
      return refuse(std::move(ready).error());
    }
  }
  auto found = find_model(deps_.models, api->model, deps_.configured_model);
  if (!found) {
    return refuse(std::move(found).error());
  }
  // Whether a pair is there, or worth waiting for, is the tracker's to say.
  auto choices = build_requests(*api, *found->model, deps_.random, unix_seconds());
  if (!choices) {
    return refuse(std::move(choices).error());
  }
  std::vector<PromptChains> chains;
  for (const GenerateRequest& choice : *choices) {
    if (choice.choice == 0) {
      chains.push_back(hash_prompt(choice.prompt, found->model->block_sizes));
    }
  }
  return [this,
          exchange,
          found = std::move(*found),
          api = std::move(*api),
          choices = std::move(*choices),
          conversation = std::move(conversation),
          chains = std::move(chains)]() mutable {
    auto writer = make_writer(api, *found.model, choices.front().id, std::move(conversation));
    submit(exchange, api, found, std::move(writer), std::move(choices), chains);
  };
}

// The messages that the template gets, and in `conversation` those that are kept with the answer.
ApiResult<void> GenerateApi::assemble(ApiRequest& api,
                                      std::vector<engine::ChatMessage>& conversation) const {
  const ResponsesFields& fields = api.responses;
  if ((fields.store || !fields.previous_id.empty()) && !deps_.store.is_on()) {
    return std::unexpected(unsupported(
        fields.store ? "store" : "previous_response_id",
        "This server keeps no responses (gateway.store_responses_mb is 0); send the whole "
        "conversation as 'input'."));
  }
  if (!fields.previous_id.empty()) {
    const auto previous = deps_.store.get(fields.previous_id);
    if (previous == nullptr) {
      ApiError error = bad_request(
          "previous_response_not_found",
          "previous_response_id",
          fmt::format("Previous response with id '{}' is not kept here.", fields.previous_id));
      error.status = 404;
      return std::unexpected(std::move(error));
    }
    api.messages.insert(api.messages.begin(), previous->messages.begin(), previous->messages.end());
  }
  if (fields.store) {
    conversation = api.messages;
  }
  if (!fields.instructions.empty()) {
    api.messages.insert(api.messages.begin(), {"system", fields.instructions, "", ""});
  }
  return {};
}

std::unique_ptr<AnswerWriter> GenerateApi::make_writer(
    const ApiRequest& api,
    const ServedModel& model,
    RequestId id,
    std::vector<engine::ChatMessage> conversation) const {
  ResponseIdentity identity{api.endpoint,
                            fmt::format("{}{:016x}", id_prefix(api.endpoint), id.value),
                            unix_seconds(),
                            model.id,
                            model.fingerprint};
  if (api.endpoint == Endpoint::Responses) {
    ResponseEventWriter::Keep keep;
    if (api.responses.store) {
      keep = [this, name = identity.id, conversation = std::move(conversation)](
                 const std::string& json, const std::string& text) mutable {
        conversation.push_back({"assistant", text, "", ""});
        deps_.store.put(name, {json, std::move(conversation)});
      };
    }
    return std::make_unique<ResponseEventWriter>(std::move(identity), api, std::move(keep));
  }
  return std::make_unique<ResponseWriter>(
      std::move(identity),
      ResponseOptions{api.sampling.num_logprobs >= 0,
                      api.return_token_ids,
                      api.stream && api.include_usage,
                      api.stream && api.include_usage && api.continuous_usage});
}

void GenerateApi::submit(const Exchange& exchange,
                         const ApiRequest& api,
                         const FoundModel& found,
                         std::unique_ptr<AnswerWriter> writer,
                         std::vector<GenerateRequest> choices,
                         const std::vector<PromptChains>& chains) {
  const HttpRequest& http = exchange->request();
  AnswerSetup setup;
  setup.request_id = request_id_for(http, choices.front().id.value);
  setup.artifacts = found.model->artifacts;
  std::vector<RequestId> ids;
  std::vector<std::size_t> prompts;  // of each choice
  for (const GenerateRequest& choice : choices) {
    if (choice.choice == 0) {
      auto& prompt = setup.prompts.emplace_back();
      prompt.tokens = static_cast<std::uint32_t>(choice.prompt.size());
      if (api.return_token_ids || api.echo) {
        prompt.ids = choice.prompt;
      }
      if (api.echo) {
        prompt.text = prompt_text(api.prompts[setup.prompts.size() - 1], *found.model->artifacts);
      }
    }
    prompts.push_back(setup.prompts.size() - 1);
    setup.choices.push_back(
        {choice.id, static_cast<std::uint32_t>(prompts.back()), choice.min_tokens});
    ids.push_back(choice.id);
  }
  setup.wants_figures = http.header("x-baton-figures") == "1";
  setup.keepalive = deps_.keepalive;
  setup.cancel = [this, ids = std::move(ids)](const std::string& reason) {
    deps_.control.post([this, ids, reason] {
      for (const RequestId id : ids) {
        deps_.tracker.cancel(id, reason);
      }
    });
  };
  setup.stop = [this](RequestId id, bool want_figures) {
    deps_.control.post([this, id, want_figures] { deps_.tracker.stop(id, want_figures); });
  };
  auto answer =
      std::make_shared<Answer>(exchange, api, std::move(setup), std::move(writer), deps_.delivery);
  answer->start();
  std::vector<Submission> submissions;
  for (std::uint32_t i = 0; i < choices.size(); ++i) {
    submissions.push_back({.request = std::move(choices[i]),
                           .received = http.received,
                           .sink = answer->sink(i),
                           .chains = chains[prompts[i]],
                           .affinity = affinity_of(api)});
  }
  deps_.control.post([this, submissions = std::move(submissions)]() mutable {
    for (Submission& submission : submissions) {
      deps_.tracker.submit(std::move(submission));
    }
  });
}

}  // namespace baton::gateway
