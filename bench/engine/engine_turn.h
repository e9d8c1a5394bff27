// One turn of the engine benchmark: a process of its own that loads a model, measures what it is
// told and prints one JSON line, as the peer's programs do, so that neither idles beside the other
// and the system counts the memory of each alike.
//
// Thread: the caller's. Failure: an unreadable model, or work that does not fit it, gives an Error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/types/kv_layout.h"

namespace baton::bench {

// Tokens of a prompt that one step computes: the peer's default, too.
constexpr std::uint32_t kEngineStepTokens = 512;

// One figure to measure.
struct EngineWork {
  bool is_prefill = false;
  unsigned tokens = 0;   // prefill: the prompt's length; decode: tokens generated a sequence
  unsigned batch = 1;    // decode: sequences
  unsigned context = 0;  // decode: tokens each holds when it begins

  // "prefill:512" or "decode:64:8:512" (tokens, batch, context).
  std::string to_string() const;
  static Result<EngineWork> parse(std::string_view text);
};

struct EngineTurnOptions {
  std::string model;  // path
  unsigned threads = 1;
  std::vector<EngineWork> work;
  KvDType kv_dtype = KvDType::I16;
  std::string packed_cache;  // folder; empty: weights are packed in memory
  std::string float_path = "exact";
};

// What a turn says of the model and of each work. Bytes and products are what one step costs at
// least.
struct EngineTurn {
  std::vector<double> tokens_per_s;  // one a work, all sequences together
  double load_seconds = 0;           // from the file's opening to a runner that can run
  bool has_float_weights = false;    // F32, F16, BF16: multiplied as floats
  bool has_bfloat_weights = false;   // BF16
  std::size_t step_weight_bytes = 0;
  std::size_t kv_bytes_per_token = 0;
  std::uint64_t row_products = 0;
  std::uint64_t head_products = 0;

  std::string to_json() const;
  static Result<EngineTurn> parse(std::string_view json);
};

Result<EngineTurn> run_engine_turn(const EngineTurnOptions& options);

}  // namespace baton::bench
