// Both peers print one JSON object a line when asked; lines that are not such objects are their
// log.
#include "bench/peer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
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

Result<std::string> run(std::vector<std::string> command) {
  const std::string name = command[0];
  const fs::path log =
      fs::temp_directory_path() / fmt::format("baton-bench-peer-{}.log", ::getpid());
  const auto output = cli::run_to_end(
      {.command = std::move(command), .output_file = log.string(), .append = false});
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
  return output->text;
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

Result<std::vector<double>> Peer::prefill(const std::string& model,
                                          const std::vector<unsigned>& tokens,
                                          unsigned threads) const {
  BATON_ASSIGN(const auto text,
               run({folder_ + "/llama-bench",
                    "-m",
                    model,
                    "-p",
                    fmt::format("{}", fmt::join(tokens, ",")),
                    "-n",
                    "0",
                    "-t",
                    std::to_string(threads),
                    "-r",
                    "1",
                    "-o",
                    "jsonl"}));
  return figures(text, "n_prompt", "avg_ts", tokens);
}

Result<std::vector<double>> Peer::decode(const std::string& model,
                                         unsigned prompt,
                                         unsigned tokens,
                                         const std::vector<unsigned>& batches,
                                         unsigned threads) const {
  const unsigned largest = *std::max_element(batches.begin(), batches.end());
  BATON_ASSIGN(const auto text,
               run({folder_ + "/llama-batched-bench",
                    "-m",
                    model,
                    "-npp",
                    std::to_string(prompt),
                    "-ntg",
                    std::to_string(tokens),
                    "-npl",
                    fmt::format("{}", fmt::join(batches, ",")),
                    "-c",
                    std::to_string((prompt + tokens) * largest),
                    "-t",
                    std::to_string(threads),
                    "-tb",
                    std::to_string(threads),
                    "--output-format",
                    "jsonl"}));
  return figures(text, "pl", "speed_tg", batches);
}

}  // namespace baton::bench
