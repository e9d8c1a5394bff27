// What a client asked for, once the gateway has parsed, templated and tokenized it. Const after
// building; the same value travels to prefill and decode.
//
// Thread: plain values. Failure: `validate` names the field that is out of range.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"

namespace baton {

// Added to a token's logit before anything else; -100 and 100 in effect bar and force it.
struct LogitBias {
  TokenId token = 0;
  float bias = 0.0F;  // [-100, 100]
  bool operator==(const LogitBias&) const = default;
};

// Defaults are the OpenAI ones; 0 or 1 as marked switches a rule off.
struct SamplingParams {
  float temperature = 1.0F;           // [0, 2]; 0 is argmax
  float top_p = 1.0F;                 // (0, 1]; 1: off
  std::int32_t top_k = 0;             // >= 0; 0: off
  float min_p = 0.0F;                 // [0, 1]; 0: off
  float repetition_penalty = 1.0F;    // > 0; 1: off; over prompt and output
  float presence_penalty = 0.0F;      // [-2, 2]; over output
  float frequency_penalty = 0.0F;     // [-2, 2]; over output
  std::uint64_t seed = 0;             // drawn once at admission when the client gave none
  std::int32_t num_logprobs = -1;     // -1: none; 0..20 alternatives beside the sampled token
  std::vector<LogitBias> logit_bias;  // at most kMaxLogitBias, each token once
};

inline constexpr std::size_t kMaxLogitBias = 1024;

// Bias and penalties come first, then temperature, then the cuts: top_k, top_p, min_p.
Status validate(const SamplingParams& sampling);

// What the output must be; the gateway has checked that it compiles.
struct Grammar {
  // A structural tag is JSON that says where which schema, expression or text stands.
  enum class Kind : std::uint8_t {
    None = 0,
    Json = 1,
    JsonSchema = 2,
    Regex = 3,
    Ebnf = 4,
    StructuralTag = 5
  };
  Kind kind = Kind::None;
  std::string text;  // schema, expression, rules or tag; empty for Json
  bool operator==(const Grammar&) const = default;
};

struct GenerateRequest {
  RequestId id{};
  Attempt attempt{};
  std::string model;
  std::vector<TokenId> prompt;  // never empty
  std::vector<TokenId> output;  // tokens already accepted: a resume replays them
  SamplingParams sampling;
  std::uint32_t choice = 0;          // index of the choice, part of the random key
  std::uint32_t max_tokens = 16;     // output limit, `output` included
  std::uint32_t min_tokens = 0;      // stop tokens are barred before it
  std::vector<TokenId> stop_tokens;  // end of text and what the client added; empty with ignore_eos
  std::chrono::milliseconds deadline{600'000};  // remaining time, relative: clocks differ
  Grammar grammar;                              // over the whole output
  std::int32_t prompt_logprobs = -1;  // -1: none; 0..20 alternatives for each token of the prompt
};

}  // namespace baton
