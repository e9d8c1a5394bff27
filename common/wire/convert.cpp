#include "common/wire/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace baton {
namespace {

std::unexpected<Error> bad(const char* field, std::string_view why) {
  return fail(ErrorCode::ProtocolError, fmt::format("{}: {}", field, why));
}

Status check_text(const char* field, const std::string& text) {
  if (text.size() > WireLimits::kName) {
    return bad(field, fmt::format("{} bytes are too long", text.size()));
  }
  return {};
}

template <class Repeated>
Result<std::vector<TokenId>> tokens_from(const char* field, const Repeated& ids, int most) {
  if (ids.size() > most) {
    return bad(field, fmt::format("{} tokens, at most {} are allowed", ids.size(), most));
  }
  for (const auto id : ids) {
    if (id < 0) {
      return bad(field, fmt::format("token id {} is negative", id));
    }
  }
  return std::vector<TokenId>(ids.begin(), ids.end());
}

Result<std::chrono::milliseconds> millis_from(const char* field,
                                              std::uint64_t value,
                                              std::uint64_t most) {
  if (value < 1 || value > most) {
    return bad(field, fmt::format("{} ms is not between 1 and {}", value, most));
  }
  return std::chrono::milliseconds(value);
}

Result<TokenLogprob> logprob_from(const char* field, const wire::Logprob& message) {
  if (message.token() < 0) {
    return bad(field, fmt::format("token id {} is negative", message.token()));
  }
  if (!std::isfinite(message.logprob())) {
    return bad(field, "not a finite number");
  }
  return TokenLogprob{message.token(), message.logprob()};
}

Result<std::vector<TokenLogprob>> logprobs_from(
    const char* where, const google::protobuf::RepeatedPtrField<wire::Logprob>& entries) {
  std::vector<TokenLogprob> out;
  out.reserve(static_cast<std::size_t>(entries.size()));
  for (const auto& entry : entries) {
    BATON_ASSIGN(const auto value, logprob_from(where, entry));
    out.push_back(value);
  }
  return out;
}

Result<std::vector<std::vector<TokenLogprob>>> top_lists_from(
    const char* where, const google::protobuf::RepeatedPtrField<wire::TopLogprobs>& lists) {
  std::vector<std::vector<TokenLogprob>> out;
  out.reserve(static_cast<std::size_t>(lists.size()));
  for (const auto& list : lists) {
    if (list.entries_size() > WireLimits::kTopLogprobs) {
      return bad(where, fmt::format("{} entries", list.entries_size()));
    }
    BATON_ASSIGN(auto entries, logprobs_from(where, list.entries()));
    out.push_back(std::move(entries));
  }
  return out;
}

// A time that has passed goes out as 1 ms: the receiver ends it at once.
std::uint64_t to_millis(std::chrono::milliseconds value, std::uint64_t most) {
  return std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(value.count(), 1)), most);
}

}  // namespace

std::size_t max_scored_prompt(std::int32_t alternatives) {
  constexpr std::size_t kRoom = (std::size_t{1} << 20) - 16'384;  // of a frame
  // Tag and length, token with its tag, number with its tag; of a list, tag and length.
  constexpr std::size_t kEntry = 2 + 6 + 5;
  constexpr std::size_t kList = 4;
  return kRoom / (kEntry * (1 + static_cast<std::size_t>(alternatives)) + kList);
}

wire::KvLayout to_wire(const KvLayout& layout) {
  wire::KvLayout message;
  message.set_layers(layout.layers);
  message.set_kv_heads(layout.kv_heads);
  message.set_head_dim(layout.head_dim);
  message.set_block_tokens(layout.block_tokens);
  message.set_dtype(static_cast<std::uint32_t>(layout.dtype));
  message.set_order(static_cast<std::uint32_t>(layout.order));
  return message;
}

Result<KvLayout> from_wire(const wire::KvLayout& message) {
  constexpr std::uint32_t kByte = std::numeric_limits<std::uint8_t>::max();
  if (message.dtype() > kByte) {
    return bad("layout.dtype", "unknown");
  }
  if (message.order() > kByte) {
    return bad("layout.order", "unknown");
  }
  KvLayout layout;
  layout.layers = message.layers();
  layout.kv_heads = message.kv_heads();
  layout.head_dim = message.head_dim();
  layout.block_tokens = message.block_tokens();
  layout.dtype = static_cast<KvDType>(message.dtype());
  layout.order = static_cast<KvOrder>(message.order());
  if (const auto valid = validate(layout); !valid) {
    return bad("layout", valid.error().message);
  }
  return layout;
}

wire::Sampling to_wire(const SamplingParams& sampling) {
  wire::Sampling message;
  message.set_temperature(sampling.temperature);
  message.set_top_p(sampling.top_p);
  message.set_top_k(sampling.top_k);
  message.set_min_p(sampling.min_p);
  message.set_repetition_penalty(sampling.repetition_penalty);
  message.set_presence_penalty(sampling.presence_penalty);
  message.set_frequency_penalty(sampling.frequency_penalty);
  message.set_seed(sampling.seed);
  message.set_num_logprobs(sampling.num_logprobs);
  for (const LogitBias& entry : sampling.logit_bias) {
    auto* const out = message.add_logit_bias();
    out->set_token(entry.token);
    out->set_bias(entry.bias);
  }
  return message;
}

Result<SamplingParams> from_wire(const wire::Sampling& message) {
  SamplingParams sampling;
  sampling.temperature = message.temperature();
  sampling.top_p = message.top_p();
  sampling.top_k = message.top_k();
  sampling.min_p = message.min_p();
  sampling.repetition_penalty = message.repetition_penalty();
  sampling.presence_penalty = message.presence_penalty();
  sampling.frequency_penalty = message.frequency_penalty();
  sampling.seed = message.seed();
  sampling.num_logprobs = message.num_logprobs();
  if (std::cmp_greater(message.logit_bias_size(), kMaxLogitBias)) {
    return bad("sampling.logit_bias", fmt::format("{} entries", message.logit_bias_size()));
  }
  for (const auto& entry : message.logit_bias()) {
    if (entry.token() < 0) {
      return bad("sampling.logit_bias", fmt::format("token {}", entry.token()));
    }
    sampling.logit_bias.push_back({.token = entry.token(), .bias = entry.bias()});
  }
  if (const auto valid = validate(sampling); !valid) {
    return bad("sampling", valid.error().message);
  }
  return sampling;
}

wire::GenerateRequest to_wire(const GenerateRequest& request) {
  wire::GenerateRequest message;
  message.set_id(request.id.value);
  message.set_attempt(request.attempt.value);
  message.set_model(request.model);
  message.mutable_prompt()->Add(request.prompt.begin(), request.prompt.end());
  message.mutable_output()->Add(request.output.begin(), request.output.end());
  *message.mutable_sampling() = to_wire(request.sampling);
  message.set_choice(request.choice);
  message.set_max_tokens(request.max_tokens);
  message.set_min_tokens(request.min_tokens);
  message.mutable_stop_tokens()->Add(request.stop_tokens.begin(), request.stop_tokens.end());
  message.set_deadline_ms(to_millis(request.deadline, WireLimits::kDeadlineMs));
  if (request.grammar.kind != Grammar::Kind::None) {
    message.mutable_grammar()->set_kind(static_cast<std::uint32_t>(request.grammar.kind));
    message.mutable_grammar()->set_text(request.grammar.text);
  }
  message.set_prompt_logprobs(request.prompt_logprobs + 1);
  return message;
}

Result<GenerateRequest> from_wire(const wire::GenerateRequest& message) {
  GenerateRequest request;
  request.id = RequestId(message.id());
  request.attempt = Attempt(message.attempt());
  BATON_TRY(check_text("request.model", message.model()));
  request.model = message.model();
  BATON_ASSIGN(request.prompt,
               tokens_from("request.prompt", message.prompt(), WireLimits::kTokens));
  if (request.prompt.empty()) {
    return bad("request.prompt", "is empty");
  }
  BATON_ASSIGN(request.output,
               tokens_from("request.output", message.output(), WireLimits::kTokens));
  if (!message.has_sampling()) {
    return bad("request.sampling", "is missing");
  }
  BATON_ASSIGN(request.sampling, from_wire(message.sampling()));
  if (message.choice() >= WireLimits::kChoices) {
    return bad("request.choice", fmt::format("{} is too high", message.choice()));
  }
  request.choice = message.choice();
  if (message.max_tokens() < 1 || message.max_tokens() > WireLimits::kTokens) {
    return bad(
        "request.max_tokens",
        fmt::format("{} is not between 1 and {}", message.max_tokens(), WireLimits::kTokens));
  }
  request.max_tokens = message.max_tokens();
  if (message.min_tokens() > message.max_tokens()) {
    return bad("request.min_tokens", "is above max_tokens");
  }
  request.min_tokens = message.min_tokens();
  if (request.output.size() >= request.max_tokens) {
    return bad("request.output", "holds max_tokens tokens already");
  }
  BATON_ASSIGN(request.stop_tokens,
               tokens_from("request.stop_tokens", message.stop_tokens(), WireLimits::kStopTokens));
  BATON_ASSIGN(request.deadline,
               millis_from("request.deadline_ms", message.deadline_ms(), WireLimits::kDeadlineMs));
  if (message.has_grammar()) {
    if (message.grammar().kind() > static_cast<std::uint32_t>(Grammar::Kind::StructuralTag)) {
      return bad("request.grammar", fmt::format("kind {} is unknown", message.grammar().kind()));
    }
    if (message.grammar().text().size() > WireLimits::kGrammar) {
      return bad("request.grammar", fmt::format("{} bytes", message.grammar().text().size()));
    }
    request.grammar = {.kind = static_cast<Grammar::Kind>(message.grammar().kind()),
                       .text = message.grammar().text()};
  }
  if (message.prompt_logprobs() < 0 || message.prompt_logprobs() > 21) {
    return bad("request.prompt_logprobs", fmt::format("{}", message.prompt_logprobs()));
  }
  request.prompt_logprobs = message.prompt_logprobs() - 1;
  return request;
}

wire::KvGrant to_wire(const KvGrant& grant) {
  wire::KvGrant message;
  message.set_node(grant.node);
  message.set_incarnation(grant.incarnation.value);
  set_lease(message, grant.lease, grant.epoch);
  message.set_layout_hash(grant.layout_hash);
  message.set_control_address(grant.control_address);
  message.set_prefix_blocks(grant.prefix_blocks);
  for (const auto& run : grant.runs) {
    auto* const out = message.add_runs();
    out->set_first(run.first.value);
    out->set_count(run.count);
  }
  message.set_ttl_ms(to_millis(grant.ttl, WireLimits::kTtlMs));
  if (grant.layout.layers > 0) {
    *message.mutable_layout() = to_wire(grant.layout);
  }
  return message;
}

Result<KvGrant> from_wire(const wire::KvGrant& message) {
  KvGrant grant;
  BATON_TRY(check_text("grant.node", message.node()));
  grant.node = message.node();
  if (grant.node.empty()) {
    return bad("grant.node", "is empty");
  }
  grant.incarnation = Incarnation(message.incarnation());
  grant.lease = lease_of(message);
  if (!grant.lease) {
    return bad("grant.lease", "is zero");
  }
  grant.epoch = Epoch(message.epoch());
  grant.layout_hash = message.layout_hash();
  if (message.has_layout()) {
    BATON_ASSIGN(grant.layout, from_wire(message.layout()));
    if (grant.layout.hash() != grant.layout_hash) {
      return bad("grant.layout_hash", "is not the hash of grant.layout");
    }
  }
  BATON_TRY(check_text("grant.control_address", message.control_address()));
  grant.control_address = message.control_address();
  if (message.prefix_blocks() > WireLimits::kTokens) {
    return bad("grant.prefix_blocks", fmt::format("{} is too high", message.prefix_blocks()));
  }
  grant.prefix_blocks = message.prefix_blocks();
  if (message.runs_size() > WireLimits::kRuns) {
    return bad("grant.runs", fmt::format("{} runs are too many", message.runs_size()));
  }
  grant.runs.reserve(static_cast<std::size_t>(message.runs_size()));
  for (const auto& run : message.runs()) {
    if (run.count() == 0) {
      return bad("grant.runs", "a run is empty");
    }
    if (run.count() > std::numeric_limits<std::uint32_t>::max() - run.first()) {
      return bad("grant.runs", "a run goes past the last block id");
    }
    grant.runs.push_back({BlockId(run.first()), run.count()});
  }
  // No block twice: two writers of one block would be one writer's wrong answer.
  auto sorted = grant.runs;
  std::sort(sorted.begin(), sorted.end(), [](const BlockRun& a, const BlockRun& b) {
    return a.first < b.first;
  });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].first.value < sorted[i - 1].first.value + sorted[i - 1].count) {
      return bad("grant.runs", fmt::format("block {} is in two runs", sorted[i].first.value));
    }
  }
  BATON_ASSIGN(grant.ttl, millis_from("grant.ttl_ms", message.ttl_ms(), WireLimits::kTtlMs));
  return grant;
}

wire::Figures to_wire(const RequestFigures& figures) {
  wire::Figures message;
  message.set_cached_tokens(figures.cached_tokens);
  message.set_prefix_blocks_held(figures.prefix_blocks_held);
  message.set_kv_bytes_moved(figures.kv_bytes_moved);
  message.set_kv_transport(figures.kv_transport);
  message.set_queue_us(figures.queue_us);
  message.set_compute_us(figures.compute_us);
  message.set_transfer_us(figures.transfer_us);
  message.set_max_batch(figures.max_batch);
  message.set_chunks(figures.chunks);
  message.set_pulled_tokens(figures.pulled_tokens);
  message.set_drafted_tokens(figures.drafted_tokens);
  message.set_accepted_tokens(figures.accepted_tokens);
  message.set_node(figures.node);
  return message;
}

Result<RequestFigures> from_wire(const wire::Figures& message) {
  BATON_TRY(check_text("figures.kv_transport", message.kv_transport()));
  BATON_TRY(check_text("figures.node", message.node()));
  RequestFigures figures;
  figures.cached_tokens = message.cached_tokens();
  figures.prefix_blocks_held = message.prefix_blocks_held();
  figures.kv_bytes_moved = message.kv_bytes_moved();
  figures.kv_transport = message.kv_transport();
  figures.queue_us = message.queue_us();
  figures.compute_us = message.compute_us();
  figures.transfer_us = message.transfer_us();
  figures.max_batch = message.max_batch();
  figures.chunks = message.chunks();
  figures.pulled_tokens = message.pulled_tokens();
  figures.drafted_tokens = message.drafted_tokens();
  figures.accepted_tokens = message.accepted_tokens();
  figures.node = message.node();
  return figures;
}

wire::TokenEvent to_wire(const TokenEvent& event) {
  wire::TokenEvent message;
  message.set_request(event.request.value);
  message.set_attempt(event.attempt.value);
  message.set_choice(event.choice);
  message.set_index(event.index);
  message.mutable_tokens()->Add(event.tokens.begin(), event.tokens.end());
  const auto put = [](const TokenLogprob& from, wire::Logprob* to) {
    to->set_token(from.token);
    to->set_logprob(from.logprob);
  };
  const auto put_lists = [&put](const auto& lists, auto& to) {
    for (const auto& list : lists) {
      auto* const out = to.Add();
      for (const auto& logprob : list) {
        put(logprob, out->add_entries());
      }
    }
  };
  for (const auto& logprob : event.logprobs) {
    put(logprob, message.add_logprobs());
  }
  put_lists(event.top_logprobs, *message.mutable_top_logprobs());
  for (const auto& logprob : event.prompt_logprobs) {
    put(logprob, message.add_prompt_logprobs());
  }
  put_lists(event.prompt_top_logprobs, *message.mutable_prompt_top_logprobs());
  message.set_finish(static_cast<std::uint32_t>(event.finish));
  if (event.error) {
    message.set_error_code(std::string(to_string(event.error->code)));
    message.set_error_message(wire_text(event.error->message));
    message.set_refused(event.refused);
  }
  if (event.figures) {
    *message.mutable_figures() = to_wire(*event.figures);
  }
  return message;
}

Result<TokenEvent> from_wire(const wire::TokenEvent& message) {
  TokenEvent event;
  event.request = RequestId(message.request());
  event.attempt = Attempt(message.attempt());
  if (message.choice() >= WireLimits::kChoices) {
    return bad("event.choice", fmt::format("{} is too high", message.choice()));
  }
  event.choice = message.choice();
  if (message.index() > WireLimits::kTokens) {
    return bad("event.index", fmt::format("{} is too high", message.index()));
  }
  event.index = message.index();
  BATON_ASSIGN(event.tokens,
               tokens_from("event.tokens", message.tokens(), WireLimits::kEventTokens));
  if (message.logprobs_size() != 0 && message.logprobs_size() != message.tokens_size()) {
    return bad("event.logprobs", "not one for each token");
  }
  BATON_ASSIGN(event.logprobs, logprobs_from("event.logprobs", message.logprobs()));
  if (message.top_logprobs_size() != 0 && message.top_logprobs_size() != message.tokens_size()) {
    return bad("event.top_logprobs", "not one list for each token");
  }
  BATON_ASSIGN(event.top_logprobs, top_lists_from("event.top_logprobs", message.top_logprobs()));
  BATON_ASSIGN(event.prompt_logprobs,
               logprobs_from("event.prompt_logprobs", message.prompt_logprobs()));
  if (message.prompt_top_logprobs_size() != 0 &&
      message.prompt_top_logprobs_size() != message.prompt_logprobs_size()) {
    return bad("event.prompt_top_logprobs", "not one list for each token");
  }
  BATON_ASSIGN(event.prompt_top_logprobs,
               top_lists_from("event.prompt_top_logprobs", message.prompt_top_logprobs()));
  if (message.finish() > static_cast<std::uint32_t>(FinishReason::Error)) {
    return bad("event.finish", fmt::format("{} is unknown", message.finish()));
  }
  event.finish = static_cast<FinishReason>(message.finish());
  if (event.finish == FinishReason::Error) {
    event.error = Error{error_code_from(message.error_code()),
                        message.error_message().substr(0, WireLimits::kErrorText)};
    event.refused = message.refused();
  }
  if (message.has_figures()) {
    BATON_ASSIGN(event.figures, from_wire(message.figures()));
  }
  if (event.tokens.empty() && event.finish == FinishReason::None && !event.figures) {
    return bad("event.tokens", "an event without tokens, end or figures");
  }
  return event;
}

wire::Refusal to_refusal(const Error& error, std::string_view field) {
  wire::Refusal refusal;
  refusal.set_code(std::string(to_string(error.code)));
  refusal.set_field(std::string(field));
  refusal.set_message(wire_text(error.message));
  return refusal;
}

Error from_refusal(const wire::Refusal& refusal) {
  auto message = refusal.message().substr(0, WireLimits::kErrorText);
  if (!refusal.field().empty()) {
    message = fmt::format("{}: {}", refusal.field().substr(0, WireLimits::kName), message);
  }
  return Error{error_code_from(refusal.code()), std::move(message)};
}

ErrorCode error_code_from(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (to_string(code) == name) {
      return code;
    }
  }
  return ErrorCode::Internal;
}

}  // namespace baton
