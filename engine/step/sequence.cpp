#include "engine/step/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton::engine {
namespace {

Status check_tokens(std::span<const TokenId> tokens, std::uint32_t vocab_size, const char* field) {
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<std::uint32_t>(token) >= vocab_size) {
      return fail(
          ErrorCode::InvalidArgument,
          fmt::format("{}: token {} is not in the vocabulary of {}", field, token, vocab_size));
    }
  }
  return {};
}

}  // namespace

Result<RequestSize> check_size(const GenerateRequest& request,
                               std::uint32_t context_length,
                               std::uint32_t vocab_size) {
  if (request.prompt.empty()) {
    return fail(ErrorCode::InvalidArgument, "the prompt has no tokens");
  }
  BATON_TRY(check_tokens(request.prompt, vocab_size, "prompt"));
  BATON_TRY(check_tokens(request.output, vocab_size, "output"));
  BATON_TRY(validate(request.sampling));
  const std::size_t prompt = request.prompt.size();
  if (prompt >= context_length) {
    return fail(
        ErrorCode::ContextTooLong,
        fmt::format(
            "the prompt has {} tokens and the model's context is {}", prompt, context_length));
  }
  RequestSize size;
  size.context = static_cast<std::uint32_t>(prompt + request.output.size());
  size.max_output =
      std::min(request.max_tokens, context_length - static_cast<std::uint32_t>(prompt));
  if (request.output.size() >= size.max_output) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} output tokens are there already and the limit is {}",
                            request.output.size(),
                            size.max_output));
  }
  // The last token's keys and values are never needed.
  size.max_stored = static_cast<std::uint32_t>(prompt) + size.max_output - 1;
  return size;
}

bool wants_prompt_logprobs(const GenerateRequest& request) {
  return request.prompt_logprobs >= 0 && request.output.empty();
}

std::vector<TokenId> context_of(const GenerateRequest& request) {
  std::vector<TokenId> context = request.prompt;
  context.insert(context.end(), request.output.begin(), request.output.end());
  return context;
}

Sequence::Sequence(GenerateRequest request,
                   RequestSize size,
                   BlockTable table,
                   std::uint32_t computed)
    : request_(std::move(request)),
      size_(size),
      table_(std::move(table)),
      begun_at_(computed),
      computed_(computed) {
  tokens_.reserve(request_.prompt.size() + size_.max_output);
  tokens_ = request_.prompt;
  tokens_.insert(tokens_.end(), request_.output.begin(), request_.output.end());
  BATON_CHECK(computed_ <= tokens_.size(), "more is computed than there are tokens");
}

SequenceSlice Sequence::slice(std::uint32_t count, std::span<const TokenId> drafts) const {
  BATON_CHECK(count >= 1 && count <= num_pending(), "a slice takes pending tokens");
  BATON_CHECK(drafts.empty() || drafts.size() <= max_drafts(), "drafts that have no place");
  SequenceSlice slice;
  slice.tokens = tokens().subspan(computed_, count);
  slice.first_position = computed_;
  slice.blocks = table_.ids();
  slice.arrived = computed_ == begun_at_;
  slice.sample = count == num_pending();
  slice.sampling = &request_.sampling;
  slice.choice = request_.choice;
  slice.prompt = request_.prompt;
  slice.output = output();
  slice.drafts = drafts;
  if (grammar_ != nullptr && slice.sample) {
    slice.mask = grammar_.get();
  } else if (num_output() < request_.min_tokens) {
    slice.barred = request_.stop_tokens;  // beside a grammar nothing might be left
  }
  const auto last = static_cast<std::uint32_t>(request_.prompt.size()) - 1;
  if (wants_prompt_logprobs(request_) && computed_ < last) {
    slice.targets = tokens().subspan(computed_ + 1, std::min(count, last - computed_));
    slice.target_alternatives = static_cast<std::uint32_t>(request_.prompt_logprobs);
  }
  return slice;
}

std::uint32_t Sequence::max_drafts() const {
  if (is_prefilling() || num_pending() != 1) {
    return 0;
  }
  // Each draft and the token behind the last one must still be wanted.
  std::uint32_t most = size_.max_output - num_output() - 1;
  if (num_output() < request_.min_tokens) {
    // Which tokens are barred holds for a whole slice.
    most = std::min(most, request_.min_tokens - num_output() - 1);
  }
  return most;
}

Sequence::Advanced Sequence::advance_all(std::uint32_t count,
                                         std::span<const SampledToken> sampled) {
  Advanced out;
  if (sampled.empty()) {
    out.finish = advance(count, nullptr);
    return out;
  }
  while (out.finish == FinishReason::None && out.taken < sampled.size()) {
    // A right draft is one more token that the step has computed.
    out.finish = advance(out.taken == 0 ? count : 1, &sampled[out.taken]);
    ++out.taken;
  }
  return out;
}

FinishReason Sequence::advance(std::uint32_t count, const SampledToken* sampled) {
  BATON_CHECK(count <= num_pending(), "a step computed more than was pending");
  computed_ += count;
  BATON_CHECK((sampled != nullptr) == (num_pending() == 0),
              "a token is sampled exactly when nothing is pending");
  return sampled == nullptr ? FinishReason::None : accept(sampled->token);
}

FinishReason Sequence::accept(TokenId token) {
  BATON_CHECK(num_pending() == 0, "a token follows only computed ones");
  tokens_.push_back(token);
  if (grammar_ != nullptr) {
    grammar_->accept(token);
  }
  if (std::ranges::find(request_.stop_tokens, token) != request_.stop_tokens.end()) {
    return FinishReason::Stop;
  }
  return num_output() >= size_.max_output ? FinishReason::Length : FinishReason::None;
}

}  // namespace baton::engine
