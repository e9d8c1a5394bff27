#include "cli/chat/generation.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::cli {
namespace {

using std::chrono::steady_clock;

double ms_between(steady_clock::time_point from, steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

const json::value* at(const json::value& value, std::string_view pointer) {
  json::error_code bad;
  return value.find_pointer(pointer, bad);
}

std::string text_at(const json::value& value, std::string_view pointer) {
  const json::value* found = at(value, pointer);
  return found != nullptr && found->is_string() ? std::string(found->as_string()) : std::string();
}

std::int64_t number_at(const json::value& value, std::string_view pointer) {
  const json::value* found = at(value, pointer);
  return found != nullptr && found->is_number() ? found->to_number<std::int64_t>() : 0;
}

}  // namespace

std::string Generation::figures_line() const {
  std::string line = fmt::format(
      "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"ttft_ms\":{:.2f},\"itl_p50_ms\":{:.2f}",
      prompt_tokens,
      completion_tokens,
      ttft_ms,
      itl_p50_ms);
  for (const auto& entry : figures) {
    const std::string key = json::serialize(json::string(entry.key()));
    if (line.find(key + ":") != std::string::npos) {
      continue;  // what the client measured counts
    }
    line += fmt::format(",{}:", key);
    line += entry.value().is_double() ? fmt::format("{:.2f}", entry.value().as_double())
                                      : json::serialize(entry.value());
  }
  return line + "}";
}

Generation generate(ApiClient& client,
                    const std::string& path,
                    json::object body,
                    const std::function<bool(std::string_view)>& on_text) {
  body["stream"] = true;
  body["stream_options"] = json::object{{"include_usage", true}};
  Generation made;
  std::vector<double> gaps;
  const auto sent = steady_clock::now();
  auto last = sent;
  made.status = client.stream(path, body, [&](const json::value& event) {
    std::string text = text_at(event, "/choices/0/delta/content");
    if (text.empty()) {
      text = text_at(event, "/choices/0/text");
    }
    const json::value* ids = at(event, "/choices/0/token_ids");
    bool carries = !text.empty();
    if (ids != nullptr && ids->is_array()) {
      for (const json::value& id : ids->as_array()) {
        made.token_ids.push_back(id.to_number<std::int64_t>());
        carries = true;
      }
    }
    if (carries) {
      const auto now = steady_clock::now();
      if (last == sent) {
        made.ttft_ms = ms_between(sent, now);
      } else {
        gaps.push_back(ms_between(last, now));
      }
      last = now;
    }
    if (const std::string reason = text_at(event, "/choices/0/finish_reason"); !reason.empty()) {
      made.finish_reason = reason;
    }
    if (const json::value* usage = at(event, "/usage"); usage != nullptr && usage->is_object()) {
      made.prompt_tokens = number_at(event, "/usage/prompt_tokens");
      made.completion_tokens = number_at(event, "/usage/completion_tokens");
    }
    if (const json::value* own = at(event, "/baton"); own != nullptr && own->is_object()) {
      made.figures = own->as_object();
    }
    made.text += text;
    return text.empty() || on_text(text);
  });
  made.itl_p50_ms = median(std::move(gaps));
  return made;
}

}  // namespace baton::cli
