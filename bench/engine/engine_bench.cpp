// The plan is a list of parts, each one process of ours and one of the peer's a repetition, which
// take turns in going first. In the first repetition the peer runs with each of its settings, then
// with the best. Parts that differ in our keys and values alone share its turns.
#include "bench/engine/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>

#include "bench/engine/engine_turn.h"
#include "bench/engine/peer.h"
#include "bench/spread.h"
#include "bench/stopwatch.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr unsigned kLoadPrompt = 8;
constexpr unsigned kShortContext = 16;  // what a long context is compared with

// Guesses for the first estimate of the whole duration; measured times replace them.
constexpr double kPeerPromptRate = 150;  // tokens a second and thread
constexpr double kPromptRate = 900;
constexpr double kPeerStepSeconds = 0.02;
constexpr double kStepSeconds = 0.008;
constexpr double kLoadSeconds = 1.0;

std::string minutes(double seconds) {
  const auto whole = static_cast<unsigned>(std::lround(seconds));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

enum class Kind { Prefill, Generate, Batch, Long, Load };

struct Part {
  Kind kind = Kind::Prefill;
  std::string model;
  unsigned threads = 1;
  std::vector<EngineWork> work;
  std::size_t compared = 0;  // works the peer does, too: the first ones
  KvDType kv_dtype = KvDType::I16;
  std::optional<std::size_t> shared;  // the part whose turns of the peer count here, too

  EngineTurn last;                        // for what it says of the model
  std::vector<std::vector<double>> ours;  // one a work: its turns
  std::vector<std::vector<double>> peers;
  std::vector<double> second;                // Load: ours mapped
  std::optional<Peer::Attention> attention;  // the peer's best setting, once known
  std::size_t rss = 0;
  std::size_t peer_rss = 0;
  std::vector<double> seconds;  // of our turns, for estimates
  std::vector<double> peer_seconds;
};

double sum_of(const std::vector<double>& figures) {
  return std::accumulate(figures.begin(), figures.end(), 0.0);
}

double prompt_tokens_of(const Part& part) {
  double tokens = 0;
  for (const EngineWork& work : part.work) {
    tokens += work.is_prefill ? work.tokens : work.context;
  }
  return tokens;
}

double steps_of(const Part& part) {
  double steps = 0;
  for (const EngineWork& work : part.work) {
    steps += work.is_prefill ? 0 : work.tokens * std::sqrt(static_cast<double>(work.batch));
  }
  return steps;
}

double guess_ours(const Part& part) {
  return (part.kind == Kind::Load ? 2 : 1) * kLoadSeconds +
         prompt_tokens_of(part) / (kPromptRate * part.threads) + steps_of(part) * kStepSeconds;
}

double guess_peer(const Part& part) {
  double tokens = 0;
  for (std::size_t i = 0; i < part.compared; ++i) {
    const EngineWork& work = part.work[i];
    tokens += work.is_prefill ? work.tokens : work.context * work.batch;
  }
  // Its benchmark warms up by computing each prompt once more.
  const double passes = part.kind == Kind::Prefill ? 2 : 1;
  return kLoadSeconds + passes * tokens / (kPeerPromptRate * part.threads) +
         steps_of(part) * kPeerStepSeconds;
}

class Bench {
 public:
  Bench(const EngineBenchOptions& options, std::optional<Peer> peer)
      : options_(options), peer_(std::move(peer)), packed_(options.run_folder + "/packed") {}

  Result<EngineBenchReport> run() {
    for (const std::string& model : options_.models) {
      plan(model);
    }
    say(fmt::format("{} parts, {} repetitions; expected to take about {} minutes",
                    parts_.size(),
                    options_.repetitions,
                    std::ceil(left(0, 0) / 60)));
    start_ = Clock::now();
    for (repetition_ = 0; repetition_ < options_.repetitions; ++repetition_) {
      for (const unsigned threads : options_.threads) {
        note_roofs(measure_roofs(threads));
      }
      for (std::size_t i = 0; i < parts_.size(); ++i) {
        say(fmt::format("[{} of {}, {} gone, about {} left] {}, {}",
                        repetition_ * parts_.size() + i + 1,
                        options_.repetitions * parts_.size(),
                        minutes(seconds_since(start_)),
                        minutes(left(repetition_, i)),
                        name_of(parts_[i]),
                        fs::path(parts_[i].model).filename().string()));
        BATON_TRY(turn(parts_[i]));
      }
    }
    return finish();
  }

 private:
  void say(const std::string& line) const {
    if (options_.progress) {
      options_.progress(line);
    }
  }

  static std::string name_of(const Part& part) {
    const char* names[] = {"prompts", "one stream", "batches", "long context", "loading"};
    return fmt::format("{}, {} thread{}, {}",
                       names[static_cast<std::size_t>(part.kind)],
                       part.threads,
                       part.threads == 1 ? "" : "s",
                       baton::to_string(part.kv_dtype));
  }

  void plan(const std::string& model) {
    const unsigned most = *std::max_element(options_.threads.begin(), options_.threads.end());
    const auto add =
        [&](Kind kind, unsigned threads, std::vector<EngineWork> work, std::size_t compared) {
          Part part;
          part.kind = kind;
          part.model = model;
          part.threads = threads;
          part.ours.resize(work.size());
          part.peers.resize(compared);
          part.work = std::move(work);
          part.compared = compared;
          part.kv_dtype = options_.kv_dtypes.front();
          parts_.push_back(std::move(part));
        };
    const auto add_for_each_dtype =
        [&](Kind kind, std::vector<EngineWork> work, std::size_t count) {
          add(kind, most, std::move(work), count);
          const std::size_t first = parts_.size() - 1;
          for (std::size_t i = 1; i < options_.kv_dtypes.size(); ++i) {
            Part part = parts_[first];
            part.kv_dtype = options_.kv_dtypes[i];
            part.shared = first;
            parts_.push_back(std::move(part));
          }
        };
    for (const unsigned threads : options_.threads) {
      if (options_.parts.prefill && !options_.prefill_tokens.empty()) {
        std::vector<EngineWork> work;
        for (const unsigned tokens : options_.prefill_tokens) {
          work.push_back({.is_prefill = true, .tokens = tokens});
        }
        const std::size_t count = work.size();
        add(Kind::Prefill, threads, std::move(work), count);
      }
      if (options_.parts.decode) {
        add(Kind::Generate, threads, {{.tokens = options_.generate_tokens}}, 1);
      }
    }
    if (options_.parts.decode && !options_.batches.empty()) {
      std::vector<EngineWork> work;
      for (const unsigned batch : options_.batches) {
        work.push_back(
            {.tokens = options_.batch_tokens, .batch = batch, .context = options_.batch_context});
      }
      const std::size_t count = work.size();
      add_for_each_dtype(Kind::Batch, std::move(work), count);
    }
    if (options_.parts.long_context) {
      const EngineWork far{.tokens = options_.batch_tokens,
                           .batch = options_.long_batch,
                           .context = options_.long_context};
      EngineWork near = far;
      near.context = kShortContext;
      add_for_each_dtype(Kind::Long, {far, near}, 1);
    }
    if (options_.parts.load) {
      add(Kind::Load, most, {{.is_prefill = true, .tokens = kLoadPrompt}}, 1);
    }
  }

  // Seconds from part `i` of a repetition to the end.
  double left(unsigned repetition, std::size_t i) const {
    double sum = 0;
    for (; repetition < options_.repetitions; ++repetition, i = 0) {
      for (; i < parts_.size(); ++i) {
        const Part& part = parts_[i];
        sum += part.seconds.empty() ? guess_ours(part) : median(part.seconds);
        if (has_peer(part)) {
          const bool all = repetition == 0 && part.kind != Kind::Load;
          sum += (all ? static_cast<double>(settings_of(part).size()) : 1) *
                 (part.peer_seconds.empty() ? guess_peer(part) : median(part.peer_seconds));
        }
      }
    }
    return sum;
  }

  void note_roofs(const Roofs& roofs) {
    roofs_[roofs.threads].push_back(roofs);
    say(fmt::format("{} thread{}: {:.1f} GB/s read, {:.0f} Gop/s 8-bit ({}), {:.0f} GFLOP/s f32",
                    roofs.threads,
                    roofs.threads == 1 ? "" : "s",
                    roofs.read_bytes_per_s * 1e-9,
                    roofs.int8_ops_per_s * 1e-9,
                    roofs.int8_instruction,
                    roofs.f32_flops_per_s * 1e-9));
  }

  bool has_peer(const Part& part) const { return peer_ && !part.shared; }

  Status turn(Part& part) {
    if (repetition_ % 2 == 1 && has_peer(part)) {
      BATON_TRY(peer(part));
      return ours(part);
    }
    BATON_TRY(ours(part));
    return has_peer(part) ? peer(part) : Status{};
  }

  std::vector<std::string> our_command(const Part& part, const std::string& packed) const {
    std::vector<std::string> command{options_.program,
                                     "bench",
                                     "engine-turn",
                                     part.model,
                                     "--threads",
                                     std::to_string(part.threads),
                                     "--kv-dtype",
                                     std::string(baton::to_string(part.kv_dtype)),
                                     "--packed-cache",
                                     packed,
                                     "--float-path",
                                     options_.float_path};
    for (const EngineWork& work : part.work) {
      command.insert(command.end(), {"--work", work.to_string()});
    }
    return command;
  }

  Status ours(Part& part) {
    const auto start = Clock::now();
    if (part.kind == Kind::Load) {
      const std::string fresh = options_.run_folder + "/fresh";
      std::error_code ignored;
      fs::remove_all(fresh, ignored);
      BATON_ASSIGN(const RunOutput first, run_measured(our_command(part, fresh)));
      BATON_ASSIGN(const RunOutput second, run_measured(our_command(part, fresh)));
      fs::remove_all(fresh, ignored);
      part.ours[0].push_back(first.seconds);
      part.second.push_back(second.seconds);
      say(fmt::format(
          "  ours: {:.3f} s the first time, {:.3f} s the second", first.seconds, second.seconds));
    } else {
      BATON_ASSIGN(const RunOutput output, run_measured(our_command(part, packed_)));
      const std::size_t line = output.text.rfind('\n');
      BATON_ASSIGN(
          part.last,
          EngineTurn::parse(
              std::string_view(output.text).substr(line == std::string::npos ? 0 : line + 1)));
      if (part.last.tokens_per_s.size() != part.work.size()) {
        return fail(ErrorCode::Internal, "a turn left out figures");
      }
      for (std::size_t i = 0; i < part.work.size(); ++i) {
        part.ours[i].push_back(part.last.tokens_per_s[i]);
      }
      part.rss = std::max(part.rss, output.peak_rss_bytes);
      say_figures("ours", part, part.last.tokens_per_s);
    }
    part.seconds.push_back(seconds_since(start));
    return {};
  }

  // What is tried; whichever is best counts.
  std::vector<Peer::Attention> settings_of(const Part& part) const {
    std::vector<Peer::Attention> settings{Peer::Attention::Plain, Peer::Attention::Flash};
    if ((part.kind == Kind::Batch || part.kind == Kind::Long) && options_.kv_dtypes.size() > 1) {
      settings.push_back(Peer::Attention::FlashQ8);
    }
    return settings;
  }

  Result<PeerFigures> run_peer(const Part& part, Peer::Attention attention) const {
    const Peer::Setting setting{part.threads, attention};
    switch (part.kind) {
      case Kind::Prefill:
        return peer_->prefill(part.model, options_.prefill_tokens, setting);
      case Kind::Generate:
        return peer_->generate(part.model, options_.generate_tokens, setting);
      case Kind::Batch:
        return peer_->decode(
            part.model, options_.batch_context, options_.batch_tokens, options_.batches, setting);
      case Kind::Long:
        return peer_->decode(part.model,
                             options_.long_context,
                             options_.batch_tokens,
                             {options_.long_batch},
                             setting);
      case Kind::Load:
        break;
    }
    return fail(ErrorCode::Internal, "no such part");
  }

  Status peer(Part& part) {
    const auto start = Clock::now();
    if (part.kind == Kind::Load) {
      BATON_ASSIGN(const RunOutput output, peer_->load(part.model, kLoadPrompt, part.threads));
      part.peers[0].push_back(output.seconds);
      say(fmt::format("  llama.cpp: {:.3f} s", output.seconds));
      part.peer_seconds.push_back(output.seconds);
      return {};
    }
    PeerFigures best;
    const auto settings = part.attention ? std::vector{*part.attention} : settings_of(part);
    for (const Peer::Attention attention : settings) {
      BATON_ASSIGN(const PeerFigures got, run_peer(part, attention));
      const std::string_view setting = to_string(attention);
      say_figures(fmt::format("llama.cpp{}{}", setting.empty() ? "" : " ", setting),
                  part,
                  got.tokens_per_s);
      if (sum_of(got.tokens_per_s) > sum_of(best.tokens_per_s)) {
        best = got;
        part.attention = attention;
      }
    }
    for (std::size_t i = 0; i < part.compared; ++i) {
      part.peers[i].push_back(best.tokens_per_s[i]);
    }
    part.peer_rss = std::max(part.peer_rss, best.peak_rss_bytes);
    part.peer_seconds.push_back(seconds_since(start) / static_cast<double>(settings.size()));
    return {};
  }

  void say_figures(std::string_view whose, const Part& part, const std::vector<double>& figures) {
    std::string line = fmt::format("  {}:", whose);
    for (std::size_t i = 0; i < figures.size() && i < part.work.size(); ++i) {
      line += fmt::format(" {} {:.1f}", part.work[i].to_string(), figures[i]);
    }
    say(line + " tokens/s");
  }

  Roofs roofs_of(unsigned threads) const {
    const std::vector<Roofs>& all = roofs_.at(threads);
    Roofs out = all.front();
    const auto middle = [&](double Roofs::*field) {
      std::vector<double> values;
      for (const Roofs& roofs : all) {
        values.push_back(roofs.*field);
      }
      return median(values);
    };
    out.read_bytes_per_s = middle(&Roofs::read_bytes_per_s);
    out.int8_ops_per_s = middle(&Roofs::int8_ops_per_s);
    out.f32_flops_per_s = middle(&Roofs::f32_flops_per_s);
    out.bf16_flops_per_s = middle(&Roofs::bf16_flops_per_s);
    return out;
  }

  EngineBenchReport finish() const {
    EngineBenchReport report;
    report.float_path = options_.float_path;
    for (const unsigned threads : options_.threads) {
      report.roofs.push_back(roofs_of(threads));
    }
    for (const Part& part : parts_) {
      if (part.kind == Kind::Load) {
        report.loads.push_back(load_row(part));
        continue;
      }
      for (std::size_t i = 0; i < part.compared; ++i) {
        report.rows.push_back(row(part, i));
      }
    }
    return report;
  }

  EngineBenchRow row(const Part& part, std::size_t i) const {
    const EngineWork& work = part.work[i];
    const EngineTurn& model = part.last;
    const Roofs roofs = roofs_of(part.threads);
    EngineBenchRow out;
    out.file = fs::path(part.model).filename().string();
    out.phase = work.is_prefill ? "prefill" : "decode";
    out.tokens = work.tokens;
    out.batch = work.batch;
    out.context = work.context;
    out.threads = part.threads;
    out.kv_dtype = part.kv_dtype;
    out.tokens_per_s = median(part.ours[i]);
    const Part& asked = part.shared ? parts_[*part.shared] : part;
    if (!asked.peers[i].empty()) {
      out.peer_tokens_per_s = median(asked.peers[i]);
      out.ratio = out.tokens_per_s / out.peer_tokens_per_s;
      out.peer_setting = to_string(asked.attention.value_or(Peer::Attention::Plain));
    }
    out.is_float = model.has_float_weights;
    out.is_bfloat = model.has_bfloat_weights && options_.float_path == "avx512_bf16";
    const double peak = out.is_bfloat  ? roofs.bf16_flops_per_s
                        : out.is_float ? roofs.f32_flops_per_s
                                       : roofs.int8_ops_per_s;
    const double products = static_cast<double>(model.row_products) +
                            (work.is_prefill ? 0.0 : static_cast<double>(model.head_products));
    out.peak_share = peak > 0 ? 2 * products * out.tokens_per_s / peak : 0;
    const auto weights = static_cast<double>(model.step_weight_bytes);
    const auto kv = static_cast<double>(model.kv_bytes_per_token);
    if (work.is_prefill) {
      const double steps = std::ceil(static_cast<double>(work.tokens) / kEngineStepTokens);
      out.memory_share = steps * weights / roofs.read_bytes_per_s * out.tokens_per_s / work.tokens;
    } else {
      const double kv_bytes = work.batch * (work.context + work.tokens / 2.0) * kv;
      const double steps_per_s = out.tokens_per_s / work.batch;
      out.memory_share = (weights + kv_bytes) * steps_per_s / roofs.read_bytes_per_s;
    }
    if (part.kind == Kind::Long) {
      // What the context adds to a step, against reading it.
      const double added = work.batch / out.tokens_per_s - work.batch / median(part.ours[i + 1]);
      const double bytes = static_cast<double>(work.batch) * (work.context - kShortContext) * kv;
      out.attention_memory_share = added > 0 ? bytes / roofs.read_bytes_per_s / added : 0;
    }
    return out;
  }

  EngineLoadRow load_row(const Part& load) const {
    EngineLoadRow out;
    out.file = fs::path(load.model).filename().string();
    out.threads = load.threads;
    out.first_s = median(load.ours[0]);
    out.second_s = median(load.second);
    out.peer_s = median(load.peers[0]);
    for (const Part& part : parts_) {
      if (part.kind == Kind::Generate && part.model == load.model && part.threads == load.threads) {
        out.peak_rss = part.rss;
        out.peer_peak_rss = part.peer_rss;
      }
    }
    return out;
  }

  const EngineBenchOptions& options_;
  const std::optional<Peer> peer_;
  const std::string packed_;
  std::vector<Part> parts_;
  std::map<unsigned, std::vector<Roofs>> roofs_;
  Clock::time_point start_;
  unsigned repetition_ = 0;
};

}  // namespace

Result<EngineBenchReport> run_engine_bench(const EngineBenchOptions& options) {
  if (options.repetitions == 0 || options.batch_tokens == 0 || options.generate_tokens == 0 ||
      options.threads.empty() || options.kv_dtypes.empty() || options.models.empty() ||
      options.long_batch == 0 || options.long_context <= kShortContext) {
    return fail(ErrorCode::InvalidArgument,
                "models, threads, repetitions and lengths must be at least 1");
  }
  std::optional<Peer> peer;
  if (!options.peer.empty()) {
    BATON_ASSIGN(auto found, Peer::find(options.peer));
    if (options.progress) {
      options.progress("peer: " + found.folder());
    }
    peer.emplace(std::move(found));
  }
  std::error_code error;
  fs::create_directories(options.run_folder, error);
  auto report = Bench(options, std::move(peer)).run();
  fs::remove_all(options.run_folder, error);
  return report;
}

}  // namespace baton::bench
