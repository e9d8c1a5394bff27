#include "gateway/responses_api/event_writer.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "common/json/json_escape.h"
#include "gateway/tools/tool_messages.h"

namespace baton::gateway {

using Kind = AnswerPart::Kind;

namespace {

void append_nullable(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

std::string_view or_else(std::string_view json, std::string_view usual) {
  return json.empty() ? usual : json;
}

std::string settings_of(const ApiRequest& api, const std::string& tier) {
  std::string out = ",\"instructions\":";
  append_nullable(out, api.responses.instructions);
  out += ",\"max_output_tokens\":";
  out += api.max_tokens ? std::to_string(*api.max_tokens) : "null";
  fmt::format_to(std::back_inserter(out),
                 ",\"max_tool_calls\":null,\"parallel_tool_calls\":{},\"previous_response_id\":",
                 api.tools.parallel);
  append_nullable(out, api.responses.previous_id);
  out += ",\"prompt_cache_key\":";
  append_nullable(out, api.prompt_cache_key);
  out += ",\"reasoning\":{\"effort\":null,\"summary\":null},\"safety_identifier\":";
  append_nullable(out, api.safety_identifier);
  fmt::format_to(std::back_inserter(out),
                 ",\"service_tier\":\"{}\",\"store\":{},\"temperature\":{},"
                 "\"text\":{{\"format\":{},\"verbosity\":\"medium\"}},"
                 "\"tool_choice\":{},\"tools\":{},\"top_logprobs\":{},\"top_p\":{},"
                 "\"truncation\":\"disabled\",\"background\":false,\"user\":",
                 tier.empty() ? "default" : tier,
                 api.responses.store,
                 api.sampling.temperature,
                 or_else(api.responses.format_json, R"({"type":"text"})"),
                 or_else(api.responses.tool_choice_json, R"("auto")"),
                 or_else(api.responses.tools_json, "[]"),
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
      number_(identity_.id.substr(identity_.id.find('_') + 1)),
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
                 ",\"item_id\":\"{}\",\"output_index\":{}",
                 items_.back().id,
                 items_.size() - 1);
  if (items_.back().kind != Kind::CallBegin) {
    out += ",\"content_index\":0";
  }
}

std::string ResponseEventWriter::content_part(const Item& item) {
  const bool is_message = item.kind == Kind::Content;
  std::string out =
      fmt::format("{{\"type\":\"{}\",\"text\":", is_message ? "output_text" : "reasoning_text");
  append_json_string(out, item.text);
  return out + (is_message ? ",\"annotations\":[],\"logprobs\":[" + item.logprobs + "]}" : "}");
}

std::string ResponseEventWriter::item_json(const Item& item, std::string_view status) {
  std::string out = fmt::format("{{\"id\":\"{}\",\"status\":\"{}\"", item.id, status);
  if (item.kind == Kind::CallBegin) {
    out += ",\"type\":\"function_call\",\"call_id\":";
    append_json_string(out, item.call_id);
    out += ",\"name\":";
    append_json_string(out, item.name);
    out += ",\"arguments\":";
    append_json_string(out, item.text);
    return out + '}';
  }
  out += item.kind == Kind::Content ? ",\"type\":\"message\",\"role\":\"assistant\""
                                    : ",\"type\":\"reasoning\",\"summary\":[]";
  out += ",\"content\":[";
  out += status == "in_progress" ? "" : content_part(item);
  return out + "]}";
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
  if (status != "in_progress" && status != "failed") {
    for (const Item& item : items_) {
      out += &item == items_.data() ? "" : ",";
      out += item_json(item, &item == &items_.back() ? status : "completed");
    }
  }
  out += ']';
  out += settings_;
  if (usage == nullptr) {
    out += ",\"usage\":null";
  } else {
    fmt::format_to(std::back_inserter(out),
                   ",\"usage\":{{\"input_tokens\":{},\"input_tokens_details\":"
                   "{{\"cached_tokens\":{}}},\"output_tokens\":{},\"output_tokens_details\":"
                   "{{\"reasoning_tokens\":{}}},\"total_tokens\":{}}}",
                   usage->prompt_tokens,
                   usage->cached_tokens,
                   usage->completion_tokens,
                   usage->reasoning_tokens,
                   usage->prompt_tokens + usage->completion_tokens);
  }
  if (!figures_.empty()) {
    out += ",\"baton\":";
    out += figures_;
  }
  return out + '}';
}

// ---- items

void ResponseEventWriter::open(std::string* out, Item item, std::string_view id_prefix) {
  end_item(out);
  item.id = fmt::format("{}_{}", id_prefix, number_);
  if (!items_.empty()) {
    item.id += fmt::format("_{}", items_.size());
  }
  items_.push_back(std::move(item));
  is_open_ = true;
  if (out == nullptr) {
    return;
  }
  begin_event(*out, "response.output_item.added");
  fmt::format_to(std::back_inserter(*out), ",\"output_index\":{},\"item\":", items_.size() - 1);
  *out += item_json(items_.back(), "in_progress");
  end_event(*out);
  if (items_.back().kind != Kind::CallBegin) {
    begin_event(*out, "response.content_part.added");
    append_place(*out);
    *out += ",\"part\":" + content_part(items_.back());
    end_event(*out);
  }
}

void ResponseEventWriter::end_item(std::string* out) {
  if (!std::exchange(is_open_, false) || out == nullptr) {
    return;
  }
  const Item& item = items_.back();
  const bool is_call = item.kind == Kind::CallBegin;
  begin_event(*out,
              is_call                      ? "response.function_call_arguments.done"
              : item.kind == Kind::Content ? "response.output_text.done"
                                           : "response.reasoning_text.done");
  append_place(*out);
  *out += is_call ? ",\"arguments\":" : ",\"text\":";
  append_json_string(*out, item.text);
  if (is_call) {
    *out += ",\"name\":";
    append_json_string(*out, item.name);
  } else if (item.kind == Kind::Content) {
    *out += ",\"logprobs\":[" + item.logprobs + "]";
  }
  end_event(*out);
  if (!is_call) {
    begin_event(*out, "response.content_part.done");
    append_place(*out);
    *out += ",\"part\":" + content_part(item);
    end_event(*out);
  }
  begin_event(*out, "response.output_item.done");
  fmt::format_to(std::back_inserter(*out), ",\"output_index\":{},\"item\":", items_.size() - 1);
  *out += item_json(item, end_status());
  end_event(*out);
}

void ResponseEventWriter::add_text(std::string* out,
                                   Kind kind,
                                   std::string_view text,
                                   std::span<const TextLogprob> logprobs) {
  if (kind != Kind::CallArguments && (!is_open_ || items_.back().kind != kind)) {
    open(out, {.kind = kind}, kind == Kind::Content ? "msg" : "rs");
  }
  Item& item = items_.back();
  item.text += text;
  std::string entries;
  if (logprobs_ && kind == Kind::Content) {
    append_logprob_entries(entries, logprobs);
    item.logprobs += item.logprobs.empty() || entries.empty() ? "" : ",";
    item.logprobs += entries;
  }
  if (out == nullptr) {
    return;
  }
  begin_event(*out,
              kind == Kind::Content     ? "response.output_text.delta"
              : kind == Kind::Reasoning ? "response.reasoning_text.delta"
                                        : "response.function_call_arguments.delta");
  append_place(*out);
  *out += ",\"delta\":";
  append_json_string(*out, text);
  if (kind == Kind::Content) {
    *out += ",\"logprobs\":[" + entries + ']';
  }
  end_event(*out);
}

void ResponseEventWriter::add(std::string* out, const ChoiceText& choice) {
  if (choice.parts == nullptr) {
    return add_text(out, Kind::Content, choice.text, choice.logprobs);
  }
  std::span<const TextLogprob> logprobs = choice.logprobs;
  for (const AnswerPart& part : *choice.parts) {
    if (part.kind == Kind::CallBegin) {
      open(out, {.kind = part.kind, .id = "", .call_id = part.id, .name = part.text}, "fc");
      continue;
    }
    add_text(out, part.kind, part.text, logprobs);
    if (part.kind == Kind::Content) {
      logprobs = {};  // they go with the first text
    }
  }
}

engine::ChatMessage ResponseEventWriter::turn() const {
  engine::ChatMessage message{"assistant", "", "", ""};
  std::string calls;
  for (const Item& item : items_) {
    if (item.kind == Kind::Content) {
      message.content += item.text;
    } else if (item.kind == Kind::CallBegin) {
      // One that was cut is no call.
      if (const auto call = tool_call_json(item.call_id, item.name, item.text, "arguments")) {
        calls += (calls.empty() ? "" : ",") + *call;
      }
    }
  }
  if (!calls.empty()) {
    message.extra_json = tool_calls_json(calls);
  }
  return message;
}

// ---- the stream

void ResponseEventWriter::begin(std::string& out, std::uint32_t, std::span<const TokenId>) {
  began_ = true;
  for (const std::string_view type : {"response.created", "response.in_progress"}) {
    begin_event(out, type);
    out += ",\"response\":";
    out += response("in_progress", nullptr);
    end_event(out);
  }
}

void ResponseEventWriter::chunk(std::string& out, const ChoiceText& choice, const Usage&) {
  add(&out, choice);
}

void ResponseEventWriter::close(std::string& out,
                                const ChoiceText& rest,
                                const ChoiceEnd& end,
                                const Usage&,
                                std::string_view figures_json) {
  is_incomplete_ = end.finish == FinishReason::Length;
  figures_ = figures_json;
  const bool has_parts = rest.parts != nullptr && !rest.parts->empty();
  if (has_parts || !rest.text.empty() || (rest.parts == nullptr && !rest.logprobs.empty())) {
    add(&out, rest);
  }
  if (items_.empty()) {
    open(&out, {}, "msg");  // an answer without text is a message, too
  }
  end_item(&out);
}

void ResponseEventWriter::finish(std::string& out, const Usage& usage) {
  const std::string json = response(end_status(), &usage);
  begin_event(out, is_incomplete_ ? "response.incomplete" : "response.completed");
  out += ",\"response\":" + json;
  end_event(out);
  if (keep_) {
    keep_(json, turn());
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
  is_incomplete_ = choices.front().end.finish == FinishReason::Length;
  figures_ = figures_json;
  add(nullptr, choices.front().text);
  if (items_.empty()) {
    open(nullptr, {}, "msg");
  }
  std::string json = response(end_status(), &usage);
  if (keep_) {
    keep_(json, turn());
  }
  return json;
}

}  // namespace baton::gateway
