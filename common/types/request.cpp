#include "common/types/request.h"

#include <fmt/format.h>

#include <cmath>

namespace baton {
namespace {

Status in_range(const char* name, double value, double low, double high) {
  if (!std::isfinite(value) || value < low || value > high) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} must be between {} and {}, got {}", name, low, high, value));
  }
  return {};
}

}  // namespace

Status validate(const SamplingParams& s) {
  BATON_TRY(in_range("temperature", s.temperature, 0, 2));
  BATON_TRY(in_range("top_p", s.top_p, 0, 1));
  BATON_TRY(in_range("min_p", s.min_p, 0, 1));
  BATON_TRY(in_range("presence_penalty", s.presence_penalty, -2, 2));
  BATON_TRY(in_range("frequency_penalty", s.frequency_penalty, -2, 2));
  if (s.top_k < 0) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("top_k must be 0 (off) or positive, got {}", s.top_k));
  }
  if (!std::isfinite(s.repetition_penalty) || s.repetition_penalty <= 0) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("repetition_penalty must be positive, got {}", s.repetition_penalty));
  }
  if (s.num_logprobs < -1 || s.num_logprobs > 20) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("logprobs must be between 0 and 20, got {}", s.num_logprobs));
  }
  if (s.logit_bias.size() > kMaxLogitBias) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format("logit_bias may name {} tokens, got {}", kMaxLogitBias, s.logit_bias.size()));
  }
  for (const LogitBias& entry : s.logit_bias) {
    BATON_TRY(in_range("logit_bias", entry.bias, -100, 100));
  }
  return {};
}

}  // namespace baton
