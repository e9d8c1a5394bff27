#include "bench/engine/engine_turn.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>

#include "bench/engine/loaded_model.h"
#include "bench/stopwatch.h"
#include "engine/kv/arena_populator.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kWarmTokens = 32;
constexpr unsigned kMostTokens = 1U << 20U;

// Any tokens do: time does not depend on them.
std::vector<TokenId> some_tokens(std::size_t count, std::uint32_t vocab, std::uint64_t seed) {
  std::vector<TokenId> out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    out.push_back(static_cast<TokenId>((seed >> 33U) % vocab));
  }
  return out;
}

double measure_prefill(LoadedModel& model, unsigned tokens) {
  const SamplingParams greedy{.temperature = 0};
  const auto prompt = some_tokens(tokens, model.runner().info().vocab_size, tokens);
  const auto start = Clock::now();
  model.prefill(0, prompt, 0, &greedy);
  return tokens / seconds_since(start);
}

// All sequences hold the same context, computed once and copied: time does not depend on values.
double measure_decode(LoadedModel& model, const EngineWork& work) {
  const SamplingParams greedy{.temperature = 0};
  const auto prompt =
      some_tokens(std::max(1U, work.context), model.runner().info().vocab_size, work.context);
  const TokenId first = model.prefill(0, prompt, 0, &greedy)->token;
  std::vector<TokenId> last(work.batch, first);
  for (unsigned i = 1; i < work.batch; ++i) {
    model.copy_context(0, i, prompt.size());
  }
  const auto start = Clock::now();
  for (unsigned step = 0; step < work.tokens; ++step) {
    engine::StepPlan plan;
    for (unsigned i = 0; i < work.batch; ++i) {
      plan.slices.push_back(model.slice(i, {&last[i], 1}, prompt.size() + step));
      plan.slices.back().sample = true;
      plan.slices.back().sampling = &greedy;
    }
    const engine::StepResult result = model.runner().run(plan, model.arena(), {});
    for (unsigned i = 0; i < work.batch; ++i) {
      last[i] = result.sampled[i]->token;
    }
  }
  return static_cast<double>(work.batch) * work.tokens / seconds_since(start);
}

// Of most weights; empty: not known.
std::optional<kernels::DType> weight_dtype(const engine::ModelFile& file) {
  for (const char* name : {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "output.weight"}) {
    if (const auto weight = file.tensor(name)) {
      return weight->dtype;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string EngineWork::to_string() const {
  return is_prefill ? fmt::format("prefill:{}", tokens)
                    : fmt::format("decode:{}:{}:{}", tokens, batch, context);
}

Result<EngineWork> EngineWork::parse(std::string_view text) {
  const auto bad = [text] {
    return fail(ErrorCode::InvalidArgument, fmt::format("not a work of the benchmark: {}", text));
  };
  EngineWork work;
  work.is_prefill = text.starts_with("prefill:");
  std::vector<unsigned> numbers;
  std::size_t at = text.find(':');
  while (at != std::string_view::npos) {
    unsigned number = 0;
    const auto [end, error] =
        std::from_chars(text.data() + at + 1, text.data() + text.size(), number);
    const auto next = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || number > kMostTokens || (next < text.size() && text[next] != ':')) {
      return bad();
    }
    numbers.push_back(number);
    at = next < text.size() ? next : std::string_view::npos;
  }
  if (numbers.size() != (work.is_prefill ? 1 : 3) || numbers[0] == 0 ||
      (!work.is_prefill && (!text.starts_with("decode:") || numbers[1] == 0))) {
    return bad();
  }
  work.tokens = numbers[0];
  if (!work.is_prefill) {
    work.batch = numbers[1];
    work.context = numbers[2];
  }
  return work;
}

Result<EngineTurn> run_engine_turn(const EngineTurnOptions& options) {
  std::size_t sequences = 1;
  std::size_t tokens = kWarmTokens;
  for (const EngineWork& work : options.work) {
    sequences = std::max<std::size_t>(sequences, work.batch);
    tokens = std::max<std::size_t>(
        tokens, work.is_prefill ? work.tokens : std::max(1U, work.context) + work.tokens);
  }
  const auto start = Clock::now();
  BATON_ASSIGN(auto model,
               LoadedModel::load({.model = options.model,
                                  .threads = options.threads,
                                  .float_path = options.float_path,
                                  .step_tokens = kEngineStepTokens,
                                  .sequences = sequences,
                                  .tokens = tokens,
                                  .kv_dtype = options.kv_dtype,
                                  .packed_cache = options.packed_cache}));
  const engine::ModelInfo& info = model.runner().info();
  EngineTurn turn;
  turn.load_seconds = seconds_since(start);
  const auto dtype = weight_dtype(model.file());
  turn.has_float_weights = dtype && kernels::info(*dtype).block_elements == 1;
  turn.has_bfloat_weights = dtype == kernels::DType::BF16;
  turn.step_weight_bytes = info.step_weight_bytes;
  turn.kv_bytes_per_token = info.layout.block_bytes_all_layers() / info.layout.block_tokens;
  turn.row_products = info.row_products;
  turn.head_products = info.head_products;
  if (options.work.size() != 1 || options.work[0].tokens >= kWarmTokens) {
    engine::ArenaPopulator(model.arena()).wait();  // as a node does beside its first requests
    measure_prefill(model, kWarmTokens);
  }
  for (const EngineWork& work : options.work) {
    turn.tokens_per_s.push_back(work.is_prefill ? measure_prefill(model, work.tokens)
                                                : measure_decode(model, work));
  }
  return turn;
}

std::string EngineTurn::to_json() const {
  return fmt::format(
      "{{\"tokens_per_s\": [{:.3f}], \"load_seconds\": {:.4f}, \"float_weights\": {}, "
      "\"bfloat_weights\": {}, \"step_weight_bytes\": {}, \"kv_bytes_per_token\": {}, "
      "\"row_products\": {}, "
      "\"head_products\": {}}}",
      fmt::join(tokens_per_s, ", "),
      load_seconds,
      has_float_weights,
      has_bfloat_weights,
      step_weight_bytes,
      kv_bytes_per_token,
      row_products,
      head_products);
}

Result<EngineTurn> EngineTurn::parse(std::string_view json) {
  EngineTurn turn;
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  simdjson::dom::array figures;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS ||
      object["tokens_per_s"].get(figures) != simdjson::SUCCESS ||
      object["load_seconds"].get(turn.load_seconds) != simdjson::SUCCESS ||
      object["float_weights"].get(turn.has_float_weights) != simdjson::SUCCESS ||
      object["bfloat_weights"].get(turn.has_bfloat_weights) != simdjson::SUCCESS ||
      object["step_weight_bytes"].get(weight_bytes) != simdjson::SUCCESS ||
      object["kv_bytes_per_token"].get(kv_bytes) != simdjson::SUCCESS ||
      object["row_products"].get(turn.row_products) != simdjson::SUCCESS ||
      object["head_products"].get(turn.head_products) != simdjson::SUCCESS) {
    return fail(ErrorCode::Internal, fmt::format("a turn printed no figures: {}", json));
  }
  turn.step_weight_bytes = weight_bytes;
  turn.kv_bytes_per_token = kv_bytes;
  for (const double figure : figures) {
    turn.tokens_per_s.push_back(figure);
  }
  return turn;
}

}  // namespace baton::bench
