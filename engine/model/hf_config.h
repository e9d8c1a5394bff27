// What config.json of a Hugging Face folder says about a model, in the words of the forward passes:
// the metadata keys that a GGUF file of the same model would have. What no key can say and no pass
// computes is refused here.
//
// Thread: plain values. Failure: InvalidModel with the file and the key.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/error.h"
#include "common/json/json_doc.h"

namespace baton::engine {

inline constexpr std::uint64_t kMaxHfContext = 1U << 24U;

enum class HfFamily : std::uint8_t {
  Llama,  // Mistral too
  Mixtral,
  Qwen2,
  Qwen3,
  Qwen3Moe,
  Phi3,
  Gemma2,
  Gemma3
};

// How 4-bit weights are stored: value = scale * (code - zero).
struct Int4Scheme {
  enum class Method : std::uint8_t { Gptq, Awq };
  Method method = Method::Gptq;
  bool zeros_less_one = false;   // GPTQ's first format stores each zero point minus one
  std::uint64_t group_size = 0;  // inputs that share a scale; 0: a whole row
};

using HfValue = std::variant<std::uint64_t, double, bool, std::string>;

struct HfConfig {
  HfFamily family = HfFamily::Llama;
  std::string architecture;                            // llama, qwen2, …
  std::map<std::string, HfValue, std::less<>> values;  // "llama.block_count" …
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t experts = 0;     // 0: dense
  std::uint32_t vocab_size = 0;  // rows of the embedding
  bool tied_output = false;      // the embedding is the output head
  bool nested = false;           // the language model is a part of a larger one
  // Divisors of the rotary frequencies by the name of the tensor that a GGUF file holds them in.
  std::map<std::string, std::vector<float>, std::less<>> rope_factors;
  std::optional<Int4Scheme> int4;
  std::vector<std::uint64_t> eos_ids;
  std::string note;  // something an operator should know; empty: nothing

  // A value of the architecture: "block_count" of "llama.block_count".
  void set(std::string_view key, HfValue value);
};

// `quantize_config`: the separate file of older GPTQ folders, if there is one.
Result<HfConfig> read_hf_config(const JsonValue& config,
                                const std::optional<JsonValue>& quantize_config);

// eos_token_id of config.json or generation_config.json: a number, a list, or nothing.
Result<std::vector<std::uint64_t>> read_eos_ids(const JsonValue& file);

}  // namespace baton::engine
