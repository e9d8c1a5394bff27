#include "bench/engine/prompt_pass.h"

#include <fmt/format.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/http/api_client.h"

namespace baton::bench {
namespace {

namespace json = boost::json;

const json::value* at(const json::value& value, std::string_view pointer) {
  json::error_code bad;
  return value.find_pointer(pointer, bad);
}

template <class Int>
Int number_at(const json::value& value, std::string_view pointer) {
  const json::value* found = at(value, pointer);
  return found != nullptr && found->is_number() ? found->to_number<Int>() : Int{0};
}

std::string text_at(const json::value& value, std::string_view pointer) {
  const json::value* found = at(value, pointer);
  return found != nullptr && found->is_string() ? std::string(found->as_string()) : std::string();
}

Result<Answer> ask(cli::ApiClient& client,
                   const Prompt& prompt,
                   std::size_t index,
                   const PassOptions& options) {
  json::object body{{"model", options.model},
                    {"prompt", prompt.text},
                    {"max_tokens", prompt.max_tokens},
                    {"ignore_eos", true},
                    {"return_token_ids", true}};
  if (options.seeded) {
    body["temperature"] = 0.8;
    body["top_p"] = 0.95;
    body["seed"] = index + 1;
  } else {
    body["temperature"] = 0;
  }
  if (options.penalties) {
    body["presence_penalty"] = 0.2;
    body["frequency_penalty"] = 0.1;
  }
  BATON_ASSIGN(const json::value reply, client.post("/v1/completions", body));
  Answer answer;
  const json::value* ids = at(reply, "/choices/0/token_ids");
  if (ids == nullptr || !ids->is_array()) {
    return fail(ErrorCode::ProtocolError, "the answer has no token_ids");
  }
  for (const json::value& id : ids->as_array()) {
    answer.token_ids.push_back(id.to_number<std::int64_t>());
  }
  answer.prompt_tokens = number_at<std::uint32_t>(reply, "/usage/prompt_tokens");
  answer.cached_tokens = number_at<std::uint32_t>(reply, "/baton/cached_tokens");
  answer.prefix_blocks_held = number_at<std::uint32_t>(reply, "/baton/prefix_blocks_held");
  answer.max_batch = number_at<std::uint32_t>(reply, "/baton/max_batch");
  answer.chunks = number_at<std::uint32_t>(reply, "/baton/chunks");
  answer.drafted_tokens = number_at<std::uint32_t>(reply, "/baton/drafted_tokens");
  answer.accepted_tokens = number_at<std::uint32_t>(reply, "/baton/accepted_tokens");
  answer.kv_bytes_moved = number_at<std::uint64_t>(reply, "/baton/kv_bytes_moved");
  answer.kv_transport = text_at(reply, "/baton/kv_transport");
  answer.prefill_node = text_at(reply, "/baton/prefill_node");
  answer.decode_node = text_at(reply, "/baton/decode_node");
  return answer;
}

}  // namespace

Result<std::vector<Prompt>> read_prompts(const std::string& path) {
  std::ifstream in(path);
  if (!in) {
    return fail(ErrorCode::NotFound, "cannot read the prompts file " + path);
  }
  std::vector<Prompt> prompts;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    json::error_code bad;
    const json::value value = json::parse(line, bad);
    Prompt prompt;
    prompt.text = bad ? std::string() : text_at(value, "/prompt");
    if (prompt.text.empty()) {
      return fail(
          ErrorCode::InvalidArgument,
          fmt::format("{}:{}: expected {{\"prompt\": text, \"max_tokens\": n}}", path, number));
    }
    if (const auto limit = number_at<std::uint32_t>(value, "/max_tokens"); limit > 0) {
      prompt.max_tokens = limit;
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    return fail(ErrorCode::InvalidArgument, path + " holds no prompt");
  }
  return prompts;
}

Result<std::vector<Answer>> run_pass(const std::vector<Prompt>& prompts,
                                     const PassOptions& options) {
  std::vector<Answer> answers(prompts.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> first_error;  // guarded by mutex
  const auto work = [&] {
    cli::ApiClient client(options.base_url);
    for (std::size_t i = next++; i < prompts.size(); i = next++) {
      Result<Answer> answer = ask(client, prompts[i], i, options);
      if (!answer) {
        const std::lock_guard lock(mutex);
        if (!first_error) {
          first_error = answer.error();
          first_error->message = fmt::format("prompt {}: {}", i + 1, first_error->message);
        }
        next = prompts.size();
        return;
      }
      answers[i] = std::move(*answer);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < options.concurrency; ++i) {
      threads.emplace_back(work);
    }
  }
  if (first_error) {
    return std::unexpected(*first_error);
  }
  return answers;
}

}  // namespace baton::bench
