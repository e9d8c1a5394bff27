#include "gateway/api/generate_api.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "common/base/digits.h"
#include "gateway/api/answer.h"
#include "gateway/api/json_body.h"
#include "gateway/api/prompt_builder.h"
#include "gateway/api/replies.h"
#include "gateway/cluster/rollout.h"
#include "gateway/openai/json_fields.h"
#include "gateway/openai/responses.h"
#include "gateway/responses_api/event_writer.h"
#include "gateway/responses_api/kept_responses.h"
#include "gateway/responses_api/parse_request.h"
#include "gateway/tools/chat_format.h"

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
  return api.prompt_cache_key.empty() ? 0 : session_of(api.prompt_cache_key);
}

// What keeps a client on one revision of a model.
std::uint64_t revision_session(const ApiRequest& api, const RandomSource& random) {
  const std::string& key = api.prompt_cache_key.empty() ? api.user : api.prompt_cache_key;
  return key.empty() ? random() : session_of(key);
}

}  // namespace

void GenerateApi::handle(const Exchange& exchange, Endpoint endpoint, const Caller& caller) {
  const auto refuse = [this, exchange](const HttpHeaders& headers, const ApiError& error) {
    exchange->add_headers(headers);
    reply_error(*exchange, error, request_id_for(exchange->request(), deps_.random()));
  };
  auto lease = caller.begin();
  if (!lease) {
    return refuse(caller.limit_headers(), lease.error());
  }
  take_json_body(exchange,
                 deps_.pool,
                 deps_.random,
                 [this, exchange, endpoint, caller, refuse, lease = std::move(*lease)](
                     const std::string& body) -> Task {
                   auto ready = prepare(body, endpoint, caller, lease);
                   if (!ready) {
                     return [refuse,
                             headers = caller.limit_headers(),
                             error = std::move(ready).error()] { refuse(headers, error); };
                   }
                   return [this, exchange, ready = std::move(*ready)] { submit(exchange, *ready); };
                 });
}

ApiResult<std::unique_ptr<GenerateApi::Ready>> GenerateApi::prepare(
    const std::string& body,
    Endpoint endpoint,
    const Caller& caller,
    std::shared_ptr<LimitLease> lease) const {
  auto api = [&] {
    const CpuTimer timer(deps_.cost.parse, body.size());
    return endpoint == Endpoint::Responses ? parse_responses_request(body)
                                           : parse_api_request(endpoint, body);
  }();
  if (!api) {
    return std::unexpected(std::move(api).error());
  }
  if (!caller.may_use_model(api->model)) {
    return std::unexpected(model_not_found(api->model));
  }
  const auto tier = caller.tier(api->service_tier);
  if (!tier) {
    return std::unexpected(tier.error());
  }
  std::vector<engine::ChatMessage> turns;
  if (endpoint == Endpoint::Responses) {
    auto assembled = assemble_turns(deps_.store, caller.name(), *api);
    if (!assembled) {
      return std::unexpected(std::move(assembled).error());
    }
    turns = std::move(*assembled);
  }
  auto found = find_model(
      deps_.models, api->model, deps_.configured_model, revision_session(*api, deps_.random));
  if (!found) {
    return std::unexpected(std::move(found).error());
  }
  if (const StructuredOutput& output = api->output; output.grammar.kind != Grammar::Kind::None) {
    if (const Status checked = deps_.grammars.check(output.grammar); !checked) {
      return std::unexpected(
          bad_request("invalid_value",
                      output.param,
                      fmt::format("Invalid '{}': {}.", output.param, checked.error().message)));
    }
  }
  // Whether a pair is there, or worth waiting for, is the tracker's to say.
  auto choices = build_requests(*api, *found->model, deps_.random, unix_seconds());
  if (!choices) {
    return std::unexpected(std::move(choices).error());
  }
  const auto grammar = answer_grammar(*api, *found->model, choices->front().prompt, deps_.grammars);
  if (!grammar) {
    return std::unexpected(grammar.error());
  }
  for (GenerateRequest& choice : *choices) {
    choice.grammar = *grammar;
  }
  std::vector<PromptChains> chains;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t answer_tokens = 0;
  for (const GenerateRequest& choice : *choices) {
    answer_tokens += choice.max_tokens;
    if (choice.choice == 0) {
      prompt_tokens += choice.prompt.size();
      chains.push_back(hash_prompt(choice.prompt, found->model->block_sizes));
    }
  }
  if (lease != nullptr) {
    if (const auto refusal = lease->reserve(prompt_tokens, prompt_tokens + answer_tokens)) {
      return std::unexpected(to_api_error(*refusal));
    }
  }
  return std::make_unique<Ready>(Ready{std::move(*api),
                                       std::move(*found),
                                       *tier,
                                       std::move(lease),
                                       std::move(*choices),
                                       std::move(chains),
                                       caller.name(),
                                       std::move(turns)});
}

std::unique_ptr<AnswerWriter> GenerateApi::make_writer(Ready& ready) const {
  const ApiRequest& api = ready.api;
  std::string id(id_prefix(api.endpoint));
  append_hex(id, ready.choices.front().id.value);
  ResponseIdentity identity{api.endpoint,
                            std::move(id),
                            unix_seconds(),
                            api.model,
                            ready.found.model->fingerprint,
                            api.names_tier ? std::string(to_string(ready.tier)) : std::string()};
  if (api.endpoint == Endpoint::Responses) {
    ResponseEventWriter::Keep keep;
    if (api.responses.store) {
      keep = keep_answer(deps_.store, ready.owner, identity.id, std::move(ready.turns));
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

void GenerateApi::submit(const Exchange& exchange, Ready& ready) {
  const HttpRequest& http = exchange->request();
  const ApiRequest& api = ready.api;
  if (ready.lease != nullptr) {
    exchange->add_headers(ready.lease->headers());
  }
  AnswerSetup setup;
  setup.request_id = request_id_for(http, ready.choices.front().id.value);
  setup.artifacts = ready.found.model->artifacts;
  setup.text = answer_options(api, *ready.found.model, ready.choices.front().prompt);
  std::vector<RequestId> ids;
  for (const GenerateRequest& choice : ready.choices) {
    if (choice.choice == 0) {
      auto& prompt = setup.prompts.emplace_back();
      prompt.tokens = static_cast<std::uint32_t>(choice.prompt.size());
      if (api.return_token_ids || api.echo) {
        prompt.ids = choice.prompt;
      }
      if (api.echo) {
        prompt.text = prompt_text(api.prompts[setup.prompts.size() - 1], *setup.artifacts);
      }
    }
    setup.choices.push_back(
        {choice.id, static_cast<std::uint32_t>(setup.prompts.size() - 1), choice.min_tokens});
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
  auto writer = make_writer(ready);
  auto answer =
      std::make_shared<Answer>(exchange, api, std::move(setup), std::move(writer), deps_.delivery);
  answer->start();
  std::vector<Submission> submissions;
  std::size_t prompt = 0;  // number of the choice's prompt, from 1
  for (std::uint32_t i = 0; i < ready.choices.size(); ++i) {
    GenerateRequest& choice = ready.choices[i];
    const bool is_first = choice.choice == 0;
    prompt += is_first ? 1 : 0;
    std::shared_ptr<AnswerSink> sink = answer->sink(i);
    if (ready.lease != nullptr) {
      sink = std::make_shared<MeteredSink>(
          std::move(sink), ready.lease, is_first ? choice.prompt.size() : 0);
    }
    const RequestTrace trace = deps_.traces.begin(http.header("traceparent"), deps_.random);
    Submission submission{
        std::move(choice), http.received, std::move(sink), ready.chains[prompt - 1]};
    submission.affinity = affinity_of(api);
    submission.tier = ready.tier;
    submission.trace = trace;
    submissions.push_back(std::move(submission));
  }
  deps_.control.dispatch([this, submissions = std::move(submissions)]() mutable {
    for (Submission& submission : submissions) {
      deps_.tracker.submit(std::move(submission));
    }
  });
}

}  // namespace baton::gateway
