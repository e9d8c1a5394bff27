// Bodies of the endpoints that generate, and of /tokenize: a request with every number in bounds,
// or an error with a status of the 400s.
#pragma once

#include <algorithm>

#include "gateway/openai/openai_request.h"
#include "gateway/responses_api/parse_request.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {

struct HttpBodyFuzz {
  static constexpr std::string_view kName = "http_body";

  static void run(std::span<const std::uint8_t> bytes) {
    const std::string body(as_text(bytes));
    const auto tokenize = gateway::parse_tokenize_request(body);
    fuzz_check(tokenize || (tokenize.error().status >= 400 && tokenize.error().status < 500));
    for (const auto endpoint :
         {gateway::Endpoint::Chat, gateway::Endpoint::Completions, gateway::Endpoint::Responses}) {
      const auto request = endpoint == gateway::Endpoint::Responses
                               ? gateway::parse_responses_request(body)
                               : gateway::parse_api_request(endpoint, body);
      if (!request) {
        fuzz_check(request.error().status >= 400 && request.error().status < 500);
        continue;
      }
      fuzz_check(request->stop.size() <= gateway::kMaxStopStrings);
      fuzz_check(request->stop_token_ids.size() <= gateway::kMaxStopTokenIds);
      fuzz_check(request->sampling.temperature >= 0);
      fuzz_check(request->sampling.top_p >= 0 && request->sampling.top_p <= 1);
      fuzz_check(std::max<std::size_t>(request->prompts.size(), 1) * request->n <=
                 gateway::kMaxChoices);
      for (const gateway::ApiPrompt& prompt : request->prompts) {
        for (const TokenId id : prompt.ids) {
          fuzz_check(id >= 0);
        }
      }
    }
  }

  static std::vector<std::string> seeds() {
    return {
        R"({"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content":
           [{"type": "text", "text": "a\u00e9\ud83d\ude00"}]}], "max_tokens": 5, "stream": true,
           "stream_options": {"include_usage": true}, "stop": ["x", "yy"], "temperature": 0.5})",
        R"({"model": "m", "messages": [{"role": "user", "content": "x"}, {"role": "assistant",
           "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f",
           "arguments": "{}"}}]}], "max_completion_tokens": 1, "seed": 7, "top_k": 5, "min_p": 0.1,
           "logit_bias": {}, "n": 1, "user": "u", "chat_template_kwargs": {"a": [1]}})",
        R"({"model": "m", "prompt": "text", "max_tokens": 3, "top_p": 0.9, "frequency_penalty": -1,
           "stop_token_ids": [1, 2], "ignore_eos": true, "echo": false, "logprobs": 2})",
        R"({"model": "m", "prompt": [1, 2, 3], "stop": "end", "return_token_ids": true})",
        R"({"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
           "instructions": "i", "store": true, "previous_response_id": "resp_1", "top_logprobs": 2,
           "text": {"format": {"type": "text"}}, "include": ["message.output_text.logprobs"]})",
        R"({"model": "m", "prompt": ["a", [1, 2]], "n": 3, "best_of": 3})",
    };
  }
};

}  // namespace baton::fuzz
