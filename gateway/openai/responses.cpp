#include "gateway/openai/responses.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "common/base/digits.h"
#include "common/json/json_escape.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";
constexpr float kTinyLogprob = -9999.0F;  // what JSON has instead of minus infinity

void append_ids(std::string& out, std::span<const TokenId> ids) {
  out += '[';
  for (std::size_t i = 0; i < ids.size(); ++i) {
    out += i == 0 ? "" : ",";
    append_number(out, ids[i]);
  }
  out += ']';
}

void append_token_entry(std::string& out, std::string_view bytes, float logprob) {
  out += "\"token\":";
  append_json_string(out, printable_token(bytes));
  out += ",\"logprob\":";
  append_logprob(out, logprob);
  out += ",\"bytes\":[";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    fmt::format_to(std::back_inserter(out),
                   "{}{}",
                   i == 0 ? "" : ",",
                   static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

void append_completion_logprobs(std::string& out,
                                std::span<const TextLogprob> logprobs,
                                std::uint32_t offset) {
  std::string tokens;
  std::string values;
  std::string tops;
  std::string offsets;
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const std::string_view comma = i == 0 ? "" : ",";
    const std::string text = printable_token(logprobs[i].bytes);
    tokens += comma;
    append_json_string(tokens, text);
    values += comma;
    tops += comma;
    fmt::format_to(std::back_inserter(offsets), "{}{}", comma, offset);
    offset += static_cast<std::uint32_t>(text.size());
    if (!logprobs[i].is_known) {
      values += "null";
      tops += "null";
      continue;
    }
    append_logprob(values, logprobs[i].logprob);
    tops += '{';
    for (std::size_t k = 0; k < logprobs[i].top.size(); ++k) {
      tops += k == 0 ? "" : ",";
      append_json_string(tops, printable_token(logprobs[i].top[k].bytes));
      tops += ':';
      append_logprob(tops, logprobs[i].top[k].logprob);
    }
    tops += '}';
  }
  fmt::format_to(std::back_inserter(out),
                 "{{\"tokens\":[{}],\"token_logprobs\":[{}],\"top_logprobs\":[{}],"
                 "\"text_offset\":[{}]}}",
                 tokens,
                 values,
                 tops,
                 offsets);
}

void append_finish(std::string& out, const ChoiceEnd& end) {
  const std::string_view name =
      end.has_calls && end.finish == FinishReason::Stop ? "tool_calls" : finish_name(end.finish);
  if (name.empty()) {
    out += ",\"finish_reason\":null";
    return;
  }
  out += ",\"finish_reason\":\"";
  out += name;
  out += "\",\"stop_reason\":";
  if (!end.stop_string.empty()) {
    append_json_string(out, end.stop_string);
  } else if (end.stop_token) {
    append_number(out, static_cast<std::uint32_t>(*end.stop_token));
  } else {
    out += "null";
  }
}

double milliseconds(std::chrono::microseconds value) {
  return static_cast<double>(value.count()) / 1000.0;
}

void append_identity_end(std::string& out, const ResponseIdentity& identity) {
  out += ",\"system_fingerprint\":";
  append_json_string(out, identity.fingerprint);
  if (!identity.service_tier.empty()) {
    out += ",\"service_tier\":";
    append_json_string(out, identity.service_tier);
  }
}

}  // namespace

void append_logprob(std::string& out, float logprob) {
  fmt::format_to(std::back_inserter(out), "{}", std::isfinite(logprob) ? logprob : kTinyLogprob);
}

std::string printable_token(std::string_view bytes) {
  std::string out;
  std::size_t i = 0;
  while (i < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    bool whole = lead < 0x80 || (lead >= 0xc2 && lead <= 0xf4 && i + length <= bytes.size());
    for (std::size_t k = 1; whole && k < length; ++k) {
      whole = (static_cast<unsigned char>(bytes[i + k]) & 0xc0) == 0x80;
    }
    if (whole) {
      out += bytes.substr(i, length);
      i += length;
    } else {
      out += "\xef\xbf\xbd";
      ++i;
    }
  }
  return out;
}

void append_logprob_entries(std::string& out, std::span<const TextLogprob> logprobs) {
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    out += i == 0 ? "{" : ",{";
    append_token_entry(out, logprobs[i].bytes, logprobs[i].logprob);
    out += ",\"top_logprobs\":[";
    for (std::size_t k = 0; k < logprobs[i].top.size(); ++k) {
      out += k == 0 ? "{" : ",{";
      append_token_entry(out, logprobs[i].top[k].bytes, logprobs[i].top[k].logprob);
      out += '}';
    }
    out += "]}";
  }
}

std::string_view finish_name(FinishReason reason) {
  return reason == FinishReason::Stop ? "stop" : reason == FinishReason::Length ? "length" : "";
}

void append_usage(std::string& out, const Usage& usage) {
  fmt::format_to(std::back_inserter(out),
                 "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},"
                 "\"prompt_tokens_details\":{{\"cached_tokens\":{},\"audio_tokens\":0}},"
                 "\"completion_tokens_details\":{{\"reasoning_tokens\":{},\"audio_tokens\":0,"
                 "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}}}",
                 usage.prompt_tokens,
                 usage.completion_tokens,
                 usage.prompt_tokens + usage.completion_tokens,
                 usage.cached_tokens,
                 usage.reasoning_tokens);
}

std::string figures_json(const AnswerFigures& figures) {
  std::string out = "{\"prefill_node\":";
  append_json_string(out, figures.prefill_node);
  out += ",\"decode_node\":";
  append_json_string(out, figures.decode_node);
  out += ",\"kv_transport\":";
  append_json_string(out, figures.kv_transport);
  fmt::format_to(
      std::back_inserter(out),
      ",\"kv_bytes_moved\":{},\"prefix_blocks_held\":{},\"cached_tokens\":{},"
      "\"pulled_tokens\":{},\"queue_ms\":{:.3f},\"prefill_ms\":{:.3f},\"transfer_ms\":{:.3f},"
      "\"max_batch\":{},\"chunks\":{},\"drafted_tokens\":{},\"accepted_tokens\":{},\"attempts\":{},"
      "\"failovers\":{}}}",
      figures.kv_bytes_moved,
      figures.prefix_blocks_held,
      figures.cached_tokens,
      figures.pulled_tokens,
      milliseconds(figures.queue),
      milliseconds(figures.prefill),
      milliseconds(figures.transfer),
      figures.max_batch,
      figures.chunks,
      figures.drafted_tokens,
      figures.accepted_tokens,
      figures.attempts,
      figures.failovers);
  return out;
}

ResponseWriter::ResponseWriter(ResponseIdentity identity, ResponseOptions options)
    : identity_(std::move(identity)), options_(options) {
  head_ = "data: {\"id\":";
  append_json_string(head_, identity_.id);
  head_ += is_chat() ? R"(,"object":"chat.completion.chunk","created":)"
                     : R"(,"object":"text_completion","created":)";
  append_number(head_, identity_.created);
  head_ += ",\"model\":";
  append_json_string(head_, identity_.model);
  append_identity_end(head_, identity_);
}

void ResponseWriter::append_logprobs(std::string& out, const ChoiceText& choice) const {
  if (!options_.logprobs || choice.logprobs.empty()) {
    out += "null";
  } else if (is_chat()) {
    out += "{\"content\":[";
    append_logprob_entries(out, choice.logprobs);
    out += "],\"refusal\":null}";
  } else {
    append_completion_logprobs(out, choice.logprobs, choice.text_offset);
  }
}

void ResponseWriter::begin_choice(std::string& out, std::uint32_t index) const {
  out += head_;
  out += ",\"choices\":[{\"index\":";
  append_number(out, index);
}

void ResponseWriter::begin(std::string& out,
                           std::uint32_t index,
                           std::span<const TokenId> prompt_ids) {
  if (!is_chat() && !options_.token_ids) {
    return;
  }
  begin_choice(out, index);
  if (is_chat()) {
    out +=
        ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
        "\"logprobs\":null,\"finish_reason\":null";
    if (options_.token_ids) {
      out += ",\"token_ids\":[]}],\"prompt_token_ids\":";
      append_ids(out, prompt_ids);
    } else {
      out += "}]";
    }
  } else {
    out +=
        ",\"text\":\"\",\"logprobs\":null,\"finish_reason\":null,\"token_ids\":[],\"prompt_token_"
        "ids\":";
    append_ids(out, prompt_ids);
    out += "}]";
  }
  if (options_.include_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

void ResponseWriter::append_chunk(std::string& out,
                                  const ChoiceText& choice,
                                  const AnswerPart* part,
                                  const ChoiceEnd& end,
                                  const Usage& usage,
                                  std::string_view figures) const {
  begin_choice(out, choice.index);
  if (!is_chat()) {
    out += ",\"text\":";
    append_json_string(out, choice.text);
  } else if (part != nullptr) {
    out += ",\"delta\":";
    append_delta(out, *part);
  } else if (end.finish != FinishReason::None && choice.text.empty()) {
    out += ",\"delta\":{}";
  } else {
    out += ",\"delta\":{\"content\":";
    append_json_string(out, choice.text);
    out += '}';
  }
  out += ",\"logprobs\":";
  append_logprobs(out, choice);
  append_finish(out, end);
  if (options_.token_ids) {
    out += ",\"token_ids\":";
    append_ids(out, choice.token_ids);
  }
  out += "}]";
  if (options_.continuous_usage) {
    out += ",\"usage\":";
    append_usage(out, usage);
  } else if (options_.include_usage) {
    out += ",\"usage\":null";
  }
  if (!figures.empty()) {
    out += ",\"baton\":";
    out += figures;
  }
  out += "}\n\n";
}

void ResponseWriter::chunk(std::string& out, const ChoiceText& choice, const Usage& usage) {
  if (choice.parts == nullptr || choice.parts->empty()) {
    return append_chunk(out, choice, nullptr, {}, usage, {});
  }
  // Ids and log-probabilities go with the first part.
  ChoiceText told = choice;
  for (const AnswerPart& part : *choice.parts) {
    append_chunk(out, told, &part, {}, usage, {});
    told = {.index = choice.index};
  }
}

void ResponseWriter::close(std::string& out,
                           const ChoiceText& rest,
                           const ChoiceEnd& end,
                           const Usage& usage,
                           std::string_view figures) {
  // Text that was held back goes out first: the closing delta of a chat is empty.
  const bool has_text = !rest.text.empty() || (rest.parts != nullptr && !rest.parts->empty());
  if (is_chat() && (has_text || !rest.logprobs.empty() || !rest.token_ids.empty())) {
    chunk(out, rest, usage);
    append_chunk(out, {.index = rest.index}, nullptr, end, usage, figures);
  } else {
    append_chunk(out, rest, nullptr, end, usage, figures);
  }
}

void ResponseWriter::finish(std::string& out, const Usage& usage) {
  if (options_.include_usage) {
    out += head_;
    out += ",\"choices\":[],\"usage\":";
    append_usage(out, usage);
    out += "}\n\n";
  }
  out += kDone;
}

void ResponseWriter::fail(std::string& out, const ApiError& error) {
  out += "data: ";
  out += error_body(error);
  out += "\n\n";
  out += kDone;
}

void ResponseWriter::append_whole(std::string& out, const WholeChoice& choice) const {
  out += "{\"index\":";
  append_number(out, choice.text.index);
  if (is_chat()) {
    out += ",\"message\":{\"role\":\"assistant\",";
    if (choice.text.parts != nullptr) {
      append_message_fields(out, *choice.text.parts);
    } else {
      out += "\"content\":";
      append_json_string(out, choice.text.text);
      out += ",\"refusal\":null";
    }
    out += '}';
  } else {
    out += ",\"text\":";
    append_json_string(out, choice.text.text);
  }
  out += ",\"logprobs\":";
  append_logprobs(out, choice.text);
  append_finish(out, choice.end);
  if (options_.token_ids) {
    out += ",\"token_ids\":";
    append_ids(out, choice.text.token_ids);
    if (!is_chat()) {
      out += ",\"prompt_token_ids\":";
      append_ids(out, choice.prompt_ids);
    }
  }
  if (!is_chat() && !choice.prompt_logprobs.empty()) {
    out += ",\"prompt_logprobs\":";
    out += choice.prompt_logprobs;
  }
  out += '}';
}

std::string ResponseWriter::whole(std::span<const WholeChoice> choices,
                                  const Usage& usage,
                                  std::string_view figures) {
  std::string out = "{\"id\":";
  append_json_string(out, identity_.id);
  fmt::format_to(std::back_inserter(out),
                 ",\"object\":\"{}\",\"created\":{},\"model\":",
                 is_chat() ? "chat.completion" : "text_completion",
                 identity_.created);
  append_json_string(out, identity_.model);
  append_identity_end(out, identity_);
  out += ",\"choices\":[";
  for (const WholeChoice& choice : choices) {
    out += choice.text.index == 0 ? "" : ",";
    append_whole(out, choice);
  }
  out += ']';
  if (options_.token_ids && is_chat()) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, choices.front().prompt_ids);
  }
  if (is_chat() && !choices.front().prompt_logprobs.empty()) {
    out += ",\"prompt_logprobs\":";
    out += choices.front().prompt_logprobs;
  }
  out += ",\"usage\":";
  append_usage(out, usage);
  if (!figures.empty()) {
    out += ",\"baton\":";
    out += figures;
  }
  out += '}';
  return out;
}

}  // namespace baton::gateway
