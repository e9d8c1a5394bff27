#include "bench/serve/serve.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <string_view>

#include "bench/cluster/stream_client.h"

namespace baton::bench {
namespace {

namespace json = boost::json;

constexpr Nanoseconds kLook = kSecond / 10;
constexpr std::uint16_t kHttpPort = 80;
constexpr std::size_t kShownError = 300;

double to_s(Nanoseconds time) {
  return static_cast<double>(time) / static_cast<double>(kSecond);
}

class Run {
 public:
  explicit Run(const ServeOptions& options)
      : options_(options),
        client_(
            options.target.server,
            options.target.base_path + (options.target.chat ? "/chat/completions" : "/completions"),
            options.target.api_key),
        begin_(now_ns()) {}

  Result<std::vector<Served>> run() {
    for (std::size_t i = 0; i < options_.load.size(); ++i) {
      const PlannedRequest& planned = options_.load[i];
      const std::string* prompt =
          options_.prompts.empty() ? nullptr : &options_.prompts[i % options_.prompts.size()];
      const std::string body =
          request_body(options_.target,
                       planned,
                       options_.same_prompt ? options_.seed : options_.seed + 1'000'003 * (i + 1),
                       prompt);
      if (options_.width > 0) {
        BATON_TRY(wait_for_place());
        BATON_TRY(send(planned, now_ns(), body));
      } else {
        const Nanoseconds due = begin_ + to_ns(planned.at_s);
        BATON_TRY(wait_until(due));
        BATON_TRY(send(planned, due, body));
      }
    }
    const Nanoseconds end = now_ns() + to_ns(options_.patience_s);
    while (!open_.empty() && now_ns() < end) {
      BATON_TRY(client_.run_until(std::min(end, now_ns() + kLook)));
      collect();
    }
    for (const Open& open : open_) {
      served_[open.index].error =
          fmt::format("not whole {} s after the last request was sent", options_.patience_s);
      client_.leave(open.number);
    }
    if (std::ranges::none_of(served_, [](const Served& one) { return one.status != 0; }) &&
        !served_.empty()) {
      return fail(ErrorCode::Unavailable, served_.front().error);
    }
    return std::move(served_);
  }

 private:
  struct Open {
    std::size_t index = 0;   // in served_
    std::size_t number = 0;  // of the stream
  };

  // `run_until` returns at once while no stream is open.
  Status wait_until(Nanoseconds due) {
    while (now_ns() < due) {
      const Nanoseconds until = std::min(due, now_ns() + kLook);
      if (open_.empty()) {
        const timespec pause{0, std::max<Nanoseconds>(0, until - now_ns())};
        ::nanosleep(&pause, nullptr);
      } else {
        BATON_TRY(client_.run_until(until));
      }
      collect();
    }
    return {};
  }

  // Until one more may be out; what is too slow for the patience counts as gone.
  Status wait_for_place() {
    const Nanoseconds end = now_ns() + to_ns(options_.patience_s);
    while (open_.size() >= options_.width) {
      if (now_ns() > end) {
        return fail(ErrorCode::Timeout,
                    fmt::format("no answer ended within {} s", options_.patience_s));
      }
      BATON_TRY(client_.run_until(std::min(end, now_ns() + kSecond / 200)));
      collect();
    }
    return {};
  }

  // An Error when not even the first can be sent.
  Status send(const PlannedRequest& planned, Nanoseconds due, const std::string& body) {
    Served one;
    one.due_s = to_s(due - begin_);
    one.input_tokens = planned.input_tokens;
    one.late_s = std::max(0.0, to_s(now_ns() - due));
    const auto number = client_.start(body);
    if (number) {
      open_.push_back({served_.size(), *number});
    } else if (served_.empty()) {
      return std::unexpected(number.error());
    } else {
      one.error = number.error().message;
    }
    served_.push_back(std::move(one));
    return {};
  }

  void collect() {
    std::erase_if(open_, [this](const Open& open) {
      if (!client_.has_ended(open.number)) {
        return false;
      }
      finish(open);
      return true;
    });
    if (options_.progress) {
      options_.progress({served_.size(),
                         served_.size() - open_.size(),
                         options_.load.size(),
                         to_s(now_ns() - begin_)});
    }
  }

  void finish(const Open& open) {
    Served& one = served_[open.index];
    one.status = client_.status(open.number);
    const auto answer = client_.answer(open.number);
    client_.forget(open.number);
    if (!answer) {
      one.error = answer.error().message.substr(0, kShownError);
      return;
    }
    const Nanoseconds due = begin_ + to_ns(one.due_s);
    if (answer->events.empty() || !answer->is_whole) {
      one.error = answer->events.empty() ? "an answer without text" : "the answer broke off";
      return;
    }
    one.is_whole = true;
    one.input_tokens = answer->prompt_tokens > 0 ? answer->prompt_tokens : one.input_tokens;
    one.output_tokens = answer->completion_tokens > 0
                            ? answer->completion_tokens
                            : static_cast<std::uint32_t>(answer->events.size());
    one.ttft_s = to_s(answer->events.front().at - due);
    one.e2e_s = to_s(answer->events.back().at - due);
    for (std::size_t i = 1; i < answer->events.size(); ++i) {
      one.gaps_s.push_back(to_s(answer->events[i].at - answer->events[i - 1].at));
    }
  }

  const ServeOptions& options_;
  StreamClient client_;
  const Nanoseconds begin_;
  std::vector<Served> served_;
  std::vector<Open> open_;
};

}  // namespace

Result<ServeTarget> parse_target(const std::string& base_url) {
  constexpr std::string_view kScheme = "http://";
  if (!base_url.starts_with(kScheme)) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("'{}' must begin with http://; measure a server behind TLS at its "
                            "plain port",
                            base_url));
  }
  const std::string_view rest = std::string_view(base_url).substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string address(rest.substr(0, slash));
  if (address.rfind(':') == std::string::npos || address.ends_with(']')) {
    address += fmt::format(":{}", kHttpPort);
  }
  ServeTarget target;
  BATON_ASSIGN(target.server, HostPort::parse(address));
  std::string path(rest.substr(slash));
  while (path.ends_with('/')) {
    path.pop_back();
  }
  if (!path.empty()) {
    target.base_path = path;
  }
  return target;
}

std::string request_body(const ServeTarget& target,
                         const PlannedRequest& request,
                         std::uint64_t seed,
                         const std::string* prompt) {
  const auto text = [&] {
    return prompt != nullptr ? *prompt : random_words(request.input_tokens, seed);
  };
  std::string asked;
  if (target.chat) {
    asked = fmt::format(R"("messages":[{{"role":"user","content":{}}}])",
                        json::serialize(json::value(text())));
  } else if (prompt != nullptr) {
    asked = fmt::format(R"("prompt":{})", json::serialize(json::value(*prompt)));
  } else {
    asked = fmt::format(R"("prompt":{})", random_ids(request.input_tokens, seed));
  }
  return fmt::format(R"({{"model":{},{},"max_tokens":{},"temperature":0,{}"stream":true,)"
                     R"("stream_options":{{"include_usage":true}}}})",
                     json::serialize(json::value(target.model)),
                     asked,
                     request.output_tokens,
                     target.ignore_eos ? R"("ignore_eos":true,)" : "");
}

Result<std::vector<Served>> serve_load(const ServeOptions& options) {
  return Run(options).run();
}

}  // namespace baton::bench
