// Each turn loads the model anew, so that nothing of ours idles beside the peer.
#include "bench/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "bench/loaded_model.h"
#include "bench/peer.h"
#include "bench/roofs.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kStepTokens = 512;  // the peer's default step, too

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

double measure_decode(LoadedModel& model, unsigned batch, const EngineBenchOptions& options) {
  const SamplingParams greedy{.temperature = 0};
  std::vector<TokenId> last;
  for (unsigned i = 0; i < batch; ++i) {
    const auto prompt = some_tokens(options.decode_prompt, model.runner().info().vocab_size, i);
    last.push_back(model.prefill(i, prompt, 0, &greedy)->token);
  }
  const auto start = Clock::now();
  for (unsigned step = 0; step < options.decode_tokens; ++step) {
    engine::StepPlan plan;
    for (unsigned i = 0; i < batch; ++i) {
      plan.slices.push_back(model.slice(i, {&last[i], 1}, options.decode_prompt + step));
      plan.slices.back().sample = true;
      plan.slices.back().sampling = &greedy;
    }
    const engine::StepResult result = model.runner().run(plan, model.arena(), {});
    for (unsigned i = 0; i < batch; ++i) {
      last[i] = result.sampled[i]->token;
    }
  }
  return static_cast<double>(batch * options.decode_tokens) / seconds_since(start);
}

// The least time a row's work can take on this machine, in seconds.
double roof_seconds(const engine::ModelInfo& info,
                    const EngineBenchRow& row,
                    const EngineBenchOptions& options,
                    const Roofs& roofs) {
  const auto weight_bytes = static_cast<double>(info.step_weight_bytes);
  if (row.phase == "prefill") {
    const double steps = std::ceil(static_cast<double>(row.tokens) / kStepTokens);
    return std::max(
        2.0 * static_cast<double>(info.row_products) * row.tokens / roofs.int8_ops_per_s,
        steps * weight_bytes / roofs.read_bytes_per_s);
  }
  const double context = options.decode_prompt + row.tokens / 2.0;  // on the average
  const double kv_bytes = row.batch * context *
                          static_cast<double>(info.layout.block_bytes_all_layers()) /
                          info.layout.block_tokens;
  const double products = static_cast<double>(info.row_products + info.head_products) * row.batch;
  return row.tokens * std::max((weight_bytes + kv_bytes) / roofs.read_bytes_per_s,
                               2.0 * products / roofs.int8_ops_per_s);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// A row and what its turns measured.
struct Measured {
  EngineBenchRow row;
  std::vector<double> ours;
  std::vector<double> peer;
};

class Bench {
 public:
  Bench(const EngineBenchOptions& options, std::optional<Peer> peer)
      : options_(options), peer_(std::move(peer)) {}

  Result<std::vector<EngineBenchRow>> run() {
    const std::string file = std::filesystem::path(options_.model).filename().string();
    for (const unsigned threads : options_.threads) {
      const Roofs roofs = measure_roofs(threads);
      say(fmt::format("roofs of {} threads: {:.1f} GB/s read, {:.0f} G 8-bit operations/s ({})",
                      threads,
                      roofs.read_bytes_per_s * 1e-9,
                      roofs.int8_ops_per_s * 1e-9,
                      roofs.int8_instruction));
      std::vector<Measured> prefill;
      std::vector<Measured> decode;
      for (const unsigned tokens : options_.prefill_tokens) {
        prefill.push_back({{file, "prefill", tokens, 1, threads}, {}, {}});
      }
      for (const unsigned batch : options_.batches) {
        decode.push_back({{file, "decode", options_.decode_tokens, batch, threads}, {}, {}});
      }
      for (unsigned turn = 0; turn < options_.repetitions; ++turn) {
        BATON_TRY(run_turn(threads, turn, prefill, decode));
      }
      for (const auto& group : {prefill, decode}) {
        for (const Measured& measured : group) {
          rows_.push_back(finish(measured, roofs));
        }
      }
    }
    return rows_;
  }

 private:
  void say(const std::string& line) const {
    if (options_.progress) {
      options_.progress(line);
    }
  }

  Status run_turn(unsigned threads,
                  unsigned turn,
                  std::vector<Measured>& prefill,
                  std::vector<Measured>& decode) {
    say(fmt::format("{} threads, turn {} of {}", threads, turn + 1, options_.repetitions));
    if (!prefill.empty()) {
      const unsigned longest =
          *std::max_element(options_.prefill_tokens.begin(), options_.prefill_tokens.end());
      BATON_TRY(ours(threads, 1, longest, prefill, [](LoadedModel& model, const Measured& m) {
        return measure_prefill(model, m.row.tokens);
      }));
      if (peer_) {
        BATON_ASSIGN(const auto figures,
                     peer_->prefill(options_.model, options_.prefill_tokens, threads));
        note_peer(prefill, figures);
      }
    }
    if (!decode.empty()) {
      const unsigned largest = *std::max_element(options_.batches.begin(), options_.batches.end());
      const unsigned tokens = options_.decode_prompt + options_.decode_tokens;
      BATON_TRY(
          ours(threads, largest, tokens, decode, [this](LoadedModel& model, const Measured& m) {
            return measure_decode(model, m.row.batch, options_);
          }));
      if (peer_) {
        BATON_ASSIGN(const auto figures,
                     peer_->decode(options_.model,
                                   options_.decode_prompt,
                                   options_.decode_tokens,
                                   options_.batches,
                                   threads));
        note_peer(decode, figures);
      }
    }
    return {};
  }

  template <class Measure>
  Status ours(unsigned threads,
              std::size_t sequences,
              std::size_t tokens,
              std::vector<Measured>& group,
              const Measure& measure) {
    BATON_ASSIGN(auto model,
                 LoadedModel::load({.model = options_.model,
                                    .threads = threads,
                                    .step_tokens = kStepTokens,
                                    .sequences = sequences,
                                    .tokens = tokens}));
    info_ = model.runner().info();
    measure_prefill(model, std::min<unsigned>(32, static_cast<unsigned>(tokens)));  // warm caches
    for (Measured& measured : group) {
      measured.ours.push_back(measure(model, measured));
      say(describe(measured.row, "ours", measured.ours.back()));
    }
    return {};
  }

  void note_peer(std::vector<Measured>& group, const std::vector<double>& figures) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      group[i].peer.push_back(figures[i]);
      say(describe(group[i].row, "peer", figures[i]));
    }
  }

  static std::string describe(const EngineBenchRow& row, std::string_view whose, double figure) {
    return fmt::format("{} {}: {} tokens, batch {}, {} threads: {:.1f} tokens/s",
                       whose,
                       row.phase,
                       row.tokens,
                       row.batch,
                       row.threads,
                       figure);
  }

  EngineBenchRow finish(const Measured& measured, const Roofs& roofs) const {
    EngineBenchRow row = measured.row;
    row.tokens_per_s = median(measured.ours);
    const double all_tokens = static_cast<double>(row.tokens) * row.batch;
    row.roof_share = roof_seconds(info_, row, options_, roofs) * row.tokens_per_s / all_tokens;
    if (!measured.peer.empty()) {
      row.peer_tokens_per_s = median(measured.peer);
      row.ratio = row.tokens_per_s / row.peer_tokens_per_s;
    }
    return row;
  }

  const EngineBenchOptions& options_;
  std::optional<Peer> peer_;
  engine::ModelInfo info_;  // of the model as last loaded
  std::vector<EngineBenchRow> rows_;
};

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace

Result<std::vector<EngineBenchRow>> run_engine_bench(const EngineBenchOptions& options) {
  if (options.repetitions == 0 || options.decode_tokens == 0 || options.decode_prompt == 0) {
    return fail(ErrorCode::InvalidArgument, "repetitions and decode lengths must be at least 1");
  }
  std::optional<Peer> peer;
  if (!options.peer.empty()) {
    BATON_ASSIGN(auto found, Peer::find(options.peer));
    if (options.progress) {
      options.progress("peer: " + found.folder());
    }
    peer.emplace(std::move(found));
  }
  return Bench(options, std::move(peer)).run();
}

std::string to_json(const std::vector<EngineBenchRow>& rows) {
  std::string out = "{\"rows\": [";
  for (const EngineBenchRow& row : rows) {
    out += fmt::format(
        "{}{{\"file\": {}, \"phase\": {}, \"tokens\": {}, \"batch\": {}, \"threads\": {}, "
        "\"tokens_per_s\": {:.2f}, \"peer_tokens_per_s\": {:.2f}, \"ratio\": {:.3f}, "
        "\"roof_share\": {:.3f}}}",
        out.back() == '[' ? "" : ", ",
        json_text(row.file),
        json_text(row.phase),
        row.tokens,
        row.batch,
        row.threads,
        row.tokens_per_s,
        row.peer_tokens_per_s,
        row.ratio,
        row.roof_share);
  }
  return out + "]}";
}

}  // namespace baton::bench
