#include "gateway/responses_api/event_writer.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "common/json/json_escape.h"

namespace baton::gateway {
namespace {

void append_nullable(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

std::string settings_of(const ApiRequest& api, const std::string& tier) {
  std::string out = ",\"instructions\":";
  append_nullable(out, api.responses.instructions);
  out += ",\"max_output_tokens\":";
  out += api.max_tokens ? std::to_string(*api.max_tokens) : "null";
  out += ",\"max_tool_calls\":null,\"parallel_tool_calls\":true,\"previous_response_id\":";
  append_nullable(out, api.responses.previous_id);
  out += ",\"prompt_cache_key\":";
  append_nullable(out, api.prompt_cache_key);
  out += ",\"reasoning\":{\"effort\":null,\"summary\":null},\"safety_identifier\":";
  append_nullable(out, api.safety_identifier);
  fmt::format_to(std::back_inserter(out),
                 ",\"service_tier\":\"{}\",\"store\":{},\"temperature\":{},"
                 "\"text\":{{\"format\":{{\"type\":\"text\"}},\"verbosity\":\"medium\"}},"
                 "\"tool_choice\":\"auto\",\"tools\":[],\"top_logprobs\":{},\"top_p\":{},"
                 "\"truncation\":\"disabled\",\"background\":false,\"user\":",
                 tier.empty() ? "default" : tier,
                 api.responses.store,
                 api.sampling.temperature,
                 std::max(api.sampling.num_logprobs, 0),
                 api.sampling.top_p);
  append_nullable(out, api.user);
  out += ",\"metadata\":";
  out += api.metadata_json.empty() ? "{}" : api.metadata_json;
  return out;
}

}  // namespace

ResponseEventWriter::ResponseEventWriter(ResponseIdentity identity,
                                         const ApiRequest& api,
                                         Keep keep)
    : identity_(std::move(identity)),
      item_id_("msg_" + identity_.id.substr(identity_.id.find('_') + 1)),
      keep_(std::move(keep)),
      logprobs_(api.sampling.num_logprobs >= 0),
      settings_(settings_of(api, identity_.service_tier)) {}

void ResponseEventWriter::begin_event(std::string& out, std::string_view type) {
  fmt::format_to(std::back_inserter(out),
                 "event: {}\ndata: {{\"type\":\"{}\",\"sequence_number\":{}",
                 type,
                 type,
                 sequence_++);
}

void ResponseEventWriter::append_place(std::string& out) const {
  fmt::format_to(std::back_inserter(out),
                 ",\"item_id\":\"{}\",\"output_index\":0,\"content_index\":0",
                 item_id_);
}

std::string ResponseEventWriter::part() const {
  std::string out = "{\"type\":\"output_text\",\"text\":";
  append_json_string(out, text_);
  return out + ",\"annotations\":[],\"logprobs\":[" + text_logprobs_ + "]}";
}

std::string ResponseEventWriter::item(std::string_view status) const {
  return fmt::format(
      "{{\"id\":\"{}\",\"type\":\"message\",\"status\":\"{}\",\"role\":\"assistant\","
      "\"content\":[{}]}}",
      item_id_,
      status,
      status == "in_progress" ? "" : part());
}

std::string ResponseEventWriter::response(std::string_view status, const Usage* usage) const {
  std::string out = "{\"id\":";
  append_json_string(out, identity_.id);
  fmt::format_to(std::back_inserter(out),
                 ",\"object\":\"response\",\"created_at\":{},\"status\":\"{}\",\"error\":{},"
                 "\"incomplete_details\":{},\"model\":",
                 identity_.created,
                 status,
                 error_.empty() ? "null" : error_,
                 is_incomplete_ ? "{\"reason\":\"max_output_tokens\"}" : "null");
  append_json_string(out, identity_.model);
  out += ",\"output\":[";
  out += status == "in_progress" || status == "failed" ? "" : item(status);
  out += ']';
  out += settings_;
  if (usage == nullptr) {
    out += ",\"usage\":null";
  } else {
    fmt::format_to(std::back_inserter(out),
                   ",\"usage\":{{\"input_tokens\":{},\"input_tokens_details\":"
                   "{{\"cached_tokens\":{}}},\"output_tokens\":{},\"output_tokens_details\":"
                   "{{\"reasoning_tokens\":0}},\"total_tokens\":{}}}",
                   usage->prompt_tokens,
                   usage->cached_tokens,
                   usage->completion_tokens,
                   usage->prompt_tokens + usage->completion_tokens);
  }
  if (!figures_.empty()) {
    out += ",\"baton\":";
    out += figures_;
  }
  return out + '}';
}

void ResponseEventWriter::add(const ChoiceText& choice) {
  text_ += choice.text;
  if (logprobs_ && !choice.logprobs.empty()) {
    text_logprobs_ += text_logprobs_.empty() ? "" : ",";
    append_logprob_entries(text_logprobs_, choice.logprobs);
  }
}

void ResponseEventWriter::begin(std::string& out, std::uint32_t, std::span<const TokenId>) {
  began_ = true;
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    begin_event(out, type);
    out += ",\"response\":";
    out += response("in_progress", nullptr);
    end_event(out);
  }
  begin_event(out, "response.output_item.added");
  out += ",\"output_index\":0,\"item\":";
  out += item("in_progress");
  end_event(out);
  begin_event(out, "response.content_part.added");
  append_place(out);
  out += ",\"part\":";
  out += part();
  end_event(out);
}

void ResponseEventWriter::chunk(std::string& out, const ChoiceText& choice, const Usage&) {
  add(choice);
  begin_event(out, "response.output_text.delta");
  append_place(out);
  out += ",\"delta\":";
  append_json_string(out, choice.text);
  out += ",\"logprobs\":[";
  if (logprobs_) {
    append_logprob_entries(out, choice.logprobs);
  }
  out += ']';
  end_event(out);
}

void ResponseEventWriter::close(std::string& out,
                                const ChoiceText& rest,
                                const ChoiceEnd& end,
                                const Usage& usage,
                                std::string_view figures_json) {
  if (!rest.text.empty() || !rest.logprobs.empty()) {
    chunk(out, rest, usage);
  }
  is_incomplete_ = end.finish == FinishReason::Length;
  figures_ = figures_json;
  begin_event(out, "response.output_text.done");
  append_place(out);
  out += ",\"text\":";
  append_json_string(out, text_);
  out += ",\"logprobs\":[" + text_logprobs_ + "]";
  end_event(out);
  begin_event(out, "response.content_part.done");
  append_place(out);
  out += ",\"part\":" + part();
  end_event(out);
  begin_event(out, "response.output_item.done");
  out += ",\"output_index\":0,\"item\":";
  out += item(is_incomplete_ ? "incomplete" : "completed");
  end_event(out);
}

void ResponseEventWriter::finish(std::string& out, const Usage& usage) {
  const std::string_view status = is_incomplete_ ? "incomplete" : "completed";
  const std::string json = response(status, &usage);
  begin_event(out, is_incomplete_ ? "response.incomplete" : "response.completed");
  out += ",\"response\":" + json;
  end_event(out);
  if (keep_) {
    keep_(json, text_);
  }
}

void ResponseEventWriter::fail(std::string& out, const ApiError& error) {
  if (!began_) {
    begin(out, 0, {});  // clients wait for response.created first
  }
  error_ = "{\"code\":";
  append_json_string(error_, error.code.empty() ? "server_error" : error.code);
  error_ += ",\"message\":";
  append_json_string(error_, error.message);
  error_ += '}';
  begin_event(out, "response.failed");
  out += ",\"response\":" + response("failed", nullptr);
  end_event(out);
}

std::string ResponseEventWriter::whole(std::span<const WholeChoice> choices,
                                       const Usage& usage,
                                       std::string_view figures_json) {
  add(choices.front().text);
  is_incomplete_ = choices.front().end.finish == FinishReason::Length;
  figures_ = figures_json;
  std::string json = response(is_incomplete_ ? "incomplete" : "completed", &usage);
  if (keep_) {
    keep_(json, text_);
  }
  return json;
}

}  // namespace baton::gateway
