// Both peers print one JSON object a line when asked; lines that are not such objects are their
// log.
#include "bench/engine/peer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "cli/process/child_process.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;

bool holds_peer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "llama-bench", ignored) &&
         fs::exists(folder / "llama-batched-bench", ignored);
}

fs::path peers_folder() {
  if (const char* cache = std::getenv("BATON_CACHE"); cache != nullptr && *cache != '\0') {
    return fs::path(cache) / "peers";
  }
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : ".") / ".cache" / "baton" / "peers";
}

std::string flash(const Peer::Setting& setting) {
  return setting.attention == Peer::Attention::Plain ? "off" : "on";
}
std::string kv_type(const Peer::Setting& setting) {
  return setting.attention == Peer::Attention::FlashQ8 ? "q8_0" : "f16";
}

// Calls `take` with every JSON object line.
void for_each_object(const std::string& text,
                     const std::function<void(simdjson::dom::object)>& take) {
  simdjson::dom::parser parser;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (text[at] == '{') {
      simdjson::dom::object object;
      if (parser.parse(text.data() + at, end - at).get(object) == simdjson::SUCCESS) {
        take(object);
      }
    }
    at = end + 1;
  }
}

// The figure named `value` of the line where `key` equals each of `wanted`.
Result<std::vector<double>> figures(const std::string& text,
                                    const char* key,
                                    const char* value,
                                    const std::vector<unsigned>& wanted) {
  std::vector<double> out(wanted.size(), 0.0);
  for_each_object(text, [&](simdjson::dom::object object) {
    std::int64_t number = 0;
    double figure = 0;
    if (object[key].get(number) == simdjson::SUCCESS &&
        object[value].get(figure) == simdjson::SUCCESS) {
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (number == static_cast<std::int64_t>(wanted[i])) {
          out[i] = figure;
        }
      }
    }
  });
  if (std::find(out.begin(), out.end(), 0.0) != out.end()) {
    return fail(
        ErrorCode::IoError,
        fmt::format(
            "the peer printed no {} for every {} of {}", value, key, fmt::join(wanted, ", ")));
  }
  return out;
}

}  // namespace

std::string_view to_string(Peer::Attention attention) {
  switch (attention) {
    case Peer::Attention::Plain:
      return "";
    case Peer::Attention::Flash:
      return "fa";
    case Peer::Attention::FlashQ8:
      return "fa q8_0";
  }
  return "";
}

Result<RunOutput> run_measured(std::vector<std::string> command) {
  const std::string name = command[0];
  const fs::path log =
      fs::temp_directory_path() / fmt::format("baton-bench-run-{}.log", ::getpid());
  const auto start = std::chrono::steady_clock::now();
  const auto output = cli::run_to_end(
      {.command = std::move(command), .output_file = log.string(), .append = false});
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  std::error_code ignored;
  fs::remove(log, ignored);
  if (!output) {
    return std::unexpected(output.error());
  }
  if (!output->exit.clean()) {
    constexpr std::size_t kShown = 500;
    const std::string_view text = output->text;
    return fail(ErrorCode::IoError,
                fmt::format("{} ended with {}: {}",
                            name,
                            output->exit.to_string(),
                            text.substr(text.size() - std::min(text.size(), kShown))));
  }
  return RunOutput{output->text, taken.count(), output->exit.peak_rss_bytes};
}

Result<Peer> Peer::find(const std::string& where) {
  if (where != "auto") {
    for (const fs::path& folder : {fs::path(where), fs::path(where) / "bin"}) {
      if (holds_peer(folder)) {
        return Peer(folder.string());
      }
    }
    return fail(ErrorCode::NotFound,
                fmt::format("no llama-bench and llama-batched-bench in {}", where));
  }
  const fs::path folder = peers_folder();
  std::optional<fs::path> newest;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const fs::path bin = entry.path() / "bin";
    if (entry.path().filename().string().starts_with("llama_cpp") && holds_peer(bin) &&
        (!newest || fs::last_write_time(bin, ignored) > fs::last_write_time(*newest, ignored))) {
      newest = bin;
    }
  }
  if (!newest) {
    return fail(ErrorCode::NotFound,
                fmt::format("no peer under {}; tools/peers/llama_cpp builds it", folder.string()));
  }
  return Peer(newest->string());
}

Result<RunOutput> Peer::llama_bench(const std::string& model,
                                    const std::string& prompts,
                                    unsigned generated,
                                    const Setting& setting) const {
  return run_measured({folder_ + "/llama-bench",
                       "-m",
                       model,
                       "-p",
                       prompts,
                       "-n",
                       std::to_string(generated),
                       "-t",
                       std::to_string(setting.threads),
                       "-fa",
                       flash(setting),
                       "-ctk",
                       kv_type(setting),
                       "-ctv",
                       kv_type(setting),
                       "-r",
                       "1",
                       "-o",
                       "jsonl"});
}

Result<PeerFigures> Peer::prefill(const std::string& model,
                                  const std::vector<unsigned>& tokens,
                                  const Setting& setting) const {
  BATON_ASSIGN(const RunOutput output,
               llama_bench(model, fmt::format("{}", fmt::join(tokens, ",")), 0, setting));
  BATON_ASSIGN(auto found, figures(output.text, "n_prompt", "avg_ts", tokens));
  return PeerFigures{std::move(found), output.peak_rss_bytes};
}

Result<PeerFigures> Peer::generate(const std::string& model,
                                   unsigned tokens,
                                   const Setting& setting) const {
  BATON_ASSIGN(const RunOutput output, llama_bench(model, "0", tokens, setting));
  BATON_ASSIGN(auto found, figures(output.text, "n_gen", "avg_ts", {tokens}));
  return PeerFigures{std::move(found), output.peak_rss_bytes};
}

Result<PeerFigures> Peer::decode(const std::string& model,
                                 unsigned context,
                                 unsigned tokens,
                                 const std::vector<unsigned>& batches,
                                 const Setting& setting) const {
  const unsigned largest = *std::max_element(batches.begin(), batches.end());
  BATON_ASSIGN(const RunOutput output,
               run_measured({folder_ + "/llama-batched-bench",
                             "-m",
                             model,
                             "-npp",
                             std::to_string(context),
                             "-ntg",
                             std::to_string(tokens),
                             "-npl",
                             fmt::format("{}", fmt::join(batches, ",")),
                             "-c",
                             std::to_string((context + tokens) * largest),
                             "-t",
                             std::to_string(setting.threads),
                             "-tb",
                             std::to_string(setting.threads),
                             "-fa",
                             flash(setting),
                             "-ctk",
                             kv_type(setting),
                             "-ctv",
                             kv_type(setting),
                             "--output-format",
                             "jsonl"}));
  BATON_ASSIGN(auto found, figures(output.text, "pl", "speed_tg", batches));
  return PeerFigures{std::move(found), output.peak_rss_bytes};
}

Result<RunOutput> Peer::load(const std::string& model, unsigned prompt, unsigned threads) const {
  return run_measured({folder_ + "/llama-bench",
                       "-m",
                       model,
                       "-p",
                       std::to_string(prompt),
                       "-n",
                       "0",
                       "-t",
                       std::to_string(threads),
                       "-r",
                       "1",
                       "--no-warmup",
                       "-o",
                       "jsonl"});
}

}  // namespace baton::bench
