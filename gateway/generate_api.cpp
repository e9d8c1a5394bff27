#include "gateway/generate_api.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "gateway/answer.h"
#include "gateway/json_body.h"
#include "gateway/prompt_builder.h"
#include "gateway/replies.h"
#include "gateway/responses.h"
#include "gateway/tools/chat_format.h"

namespace baton::gateway {
namespace {

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string_view id_prefix(Endpoint endpoint) {
  return endpoint == Endpoint::Chat ? "chatcmpl" : "cmpl";
}

std::unique_ptr<AnswerWriter> make_writer(const ApiRequest& api,
                                          const ServedModel& model,
                                          std::uint64_t number) {
  ResponseIdentity identity{api.endpoint,
                            fmt::format("{}-{:016x}", id_prefix(api.endpoint), number),
                            unix_seconds(),
                            model.id,
                            model.fingerprint};
  return std::make_unique<ResponseWriter>(
      std::move(identity),
      ResponseOptions{api.sampling.num_logprobs >= 0,
                      api.return_token_ids,
                      api.stream && api.include_usage,
                      api.stream && api.include_usage && api.continuous_usage});
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
    return parse_api_request(endpoint, body);
  }();
  if (!api) {
    return refuse(std::move(api).error());
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
          chains = std::move(chains)]() mutable {
    submit(exchange, api, found, std::move(choices), chains);
  };
}

void GenerateApi::submit(const Exchange& exchange,
                         const ApiRequest& api,
                         const FoundModel& found,
                         std::vector<GenerateRequest> choices,
                         const std::vector<PromptChains>& chains) {
  const HttpRequest& http = exchange->request();
  const std::uint64_t number = choices.front().id.value;
  AnswerSetup setup;
  setup.request_id = request_id_for(http, number);
  setup.artifacts = found.model->artifacts;
  setup.text = answer_options(api, *found.model, choices.front().prompt);
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
  auto answer = std::make_shared<Answer>(
      exchange, api, std::move(setup), make_writer(api, *found.model, number), deps_.delivery);
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
