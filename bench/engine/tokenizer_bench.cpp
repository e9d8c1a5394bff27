#include "bench/engine/tokenizer_bench.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "bench/spread.h"
#include "cli/process/child_process.h"
#include "engine/model/model_file.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return fail(ErrorCode::NotFound, fmt::format("cannot open the file {}", path));
  }
  std::string text(limit, '\0');
  in.read(text.data(), static_cast<std::streamsize>(limit));
  if (in.bad()) {
    return fail(ErrorCode::IoError, fmt::format("cannot read {}", path));
  }
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

// Cuts a text into documents of at most `size` bytes, at a line's end where there is one.
void cut(std::string_view text, std::size_t size, std::vector<std::string>& documents) {
  while (!text.empty()) {
    std::size_t end = std::min(size, text.size());
    if (end < text.size()) {
      const std::size_t line = text.rfind('\n', end - 1);
      end = line != std::string_view::npos && line > 0
                ? line + 1
                : engine::complete_utf8_prefix(text.substr(0, end));
    }
    documents.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

Result<std::vector<std::string>> read_documents(const TokenizerBenchOptions& options) {
  std::vector<std::string> documents;
  if (options.texts.empty() || options.document_bytes < 16) {
    return fail(ErrorCode::InvalidArgument, "no text files, or documents of less than 16 bytes");
  }
  for (const std::string& path : options.texts) {
    BATON_ASSIGN(std::string text, read_file(path, options.bytes / options.texts.size()));
    text.resize(engine::complete_utf8_prefix(text));
    cut(text, options.document_bytes, documents);
  }
  return documents;
}

// A folder of our own that goes with the object.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(fs::temp_directory_path() / fmt::format("baton-bench-tokenizer-{}", ::getpid())) {
    fs::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

void write_count(std::ofstream& out, std::size_t count) {
  const auto value = static_cast<std::uint32_t>(count);
  out.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

Status write_documents(const std::string& path, const std::vector<std::string>& documents) {
  std::ofstream out(path, std::ios::binary);
  for (const std::string& document : documents) {
    write_count(out, document.size());
    out.write(document.data(), static_cast<std::streamsize>(document.size()));
  }
  if (!out.flush()) {
    return fail(ErrorCode::IoError, fmt::format("cannot write {}", path));
  }
  return {};
}

Result<std::vector<Ids>> read_ids(const std::string& path) {
  BATON_ASSIGN(const std::string bytes, read_file(path, fs::file_size(path)));
  std::vector<Ids> all;
  for (std::size_t at = 0; at + 4 <= bytes.size();) {
    std::uint32_t count = 0;
    std::memcpy(&count, bytes.data() + at, sizeof(count));
    at += sizeof(count);
    if (count > (bytes.size() - at) / sizeof(TokenId)) {
      return fail(ErrorCode::IoError, "the peer's ids end within a document");
    }
    all.emplace_back(count);
    std::memcpy(all.back().data(), bytes.data() + at, count * sizeof(TokenId));
    at += count * sizeof(TokenId);
  }
  return all;
}

struct Peer {
  const TokenizerBenchOptions& options;
  const ScratchFolder& scratch;

  // Seconds of the peer's passes over the documents.
  Result<std::vector<double>> passes() const {
    std::vector<std::string> command = {options.peer_python,
                                        options.peer_script,
                                        options.model,
                                        scratch.file("documents"),
                                        scratch.file("ids")};
    if (options.plain) {
      command.emplace_back("--plain");
    }
    BATON_ASSIGN(
        const auto output,
        cli::run_to_end(
            {.command = std::move(command), .output_file = scratch.file("log"), .append = false}));
    simdjson::dom::parser parser;
    simdjson::dom::array seconds;
    const std::size_t line = output.text.rfind("\n{");
    const std::string last =
        output.text.substr(line == std::string::npos ? 0 : line + 1, output.text.size());
    if (!output.exit.clean() || parser.parse(last)["seconds"].get(seconds) != simdjson::SUCCESS) {
      return fail(ErrorCode::IoError,
                  fmt::format("{} {} ended with {}: {}",
                              options.peer_python,
                              options.peer_script,
                              output.exit.to_string(),
                              output.text));
    }
    std::vector<double> passes;
    for (const auto value : seconds) {
      passes.push_back(value.get_double().value());
    }
    return passes;
  }
};

template <class Work>
double seconds_of(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Empty when all are equal.
std::string first_difference(const std::vector<std::string>& documents,
                             const std::vector<Ids>& ours,
                             const std::vector<Ids>& theirs) {
  if (ours.size() != theirs.size()) {
    return fmt::format("{} documents here, {} there", ours.size(), theirs.size());
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] != theirs[i]) {
      const auto [left, right] =
          std::mismatch(ours[i].begin(), ours[i].end(), theirs[i].begin(), theirs[i].end());
      const auto name = [](const Ids& ids, Ids::const_iterator id) {
        return id == ids.end() ? std::string("the end") : std::to_string(*id);
      };
      return fmt::format("document {} (begins \"{}\"), token {}: {} here, {} there",
                         i,
                         engine::sanitize_utf8(documents[i].substr(0, 40)),
                         left - ours[i].begin(),
                         name(ours[i], left),
                         name(theirs[i], right));
    }
  }
  return {};
}

}  // namespace

Result<TokenizerBenchRow> run_tokenizer_bench(const TokenizerBenchOptions& options) {
  BATON_ASSIGN(const auto file, engine::ModelFile::open(options.model));
  BATON_ASSIGN(const engine::TokenizerSpec spec, file->tokenizer_spec());
  BATON_ASSIGN(const std::vector<std::string> documents, read_documents(options));
  const ScratchFolder scratch;
  BATON_TRY(write_documents(scratch.file("documents"), documents));

  TokenizerBenchRow row;
  row.file = fs::path(options.model).filename().string();
  row.family = spec.model == "llama" ? "sentencepiece" : spec.pre_tokenizer;
  row.documents = documents.size();
  for (const std::string& document : documents) {
    row.bytes += document.size();
  }
  const double megabytes = static_cast<double>(row.bytes) / 1e6;
  const Peer peer{options, scratch};
  std::vector<double> builds;
  std::vector<double> cold;
  std::vector<double> warm;
  std::vector<double> theirs;
  std::vector<Ids> ids(documents.size());
  for (unsigned round = 0; round < std::max(options.rounds, 1U); ++round) {
    Result<std::unique_ptr<const engine::Tokenizer>> tokenizer = nullptr;
    engine::TokenizerSpec copy = spec;
    builds.push_back(seconds_of([&] { tokenizer = engine::Tokenizer::create(std::move(copy)); }));
    if (!tokenizer) {
      return std::unexpected(std::move(tokenizer).error());
    }
    const auto pass = [&] {
      for (std::size_t i = 0; i < documents.size(); ++i) {
        ids[i] = (*tokenizer)->encode(documents[i], !options.plain, false);
      }
    };
    cold.push_back(megabytes / seconds_of(pass));
    warm.push_back(megabytes / seconds_of(pass));
    if (!options.peer_python.empty()) {
      BATON_ASSIGN(const auto seconds, peer.passes());
      for (const double value : seconds) {
        theirs.push_back(megabytes / value);
      }
    }
    if (options.progress) {
      options.progress(fmt::format("{} round {}: {:.1f} MB/s cold, {:.1f} warm, peer {:.2f}",
                                   row.file,
                                   round + 1,
                                   cold.back(),
                                   warm.back(),
                                   theirs.empty() ? 0.0 : theirs.back()));
    }
  }
  row.build_s = median(builds);
  row.cold_mb_s = median(cold);
  row.warm_mb_s = median(warm);
  for (const Ids& document : ids) {
    row.tokens += document.size();
  }
  if (!theirs.empty()) {
    row.peer_mb_s = *std::max_element(theirs.begin(), theirs.end());
    row.ratio = row.cold_mb_s / row.peer_mb_s;
    BATON_ASSIGN(const std::vector<Ids> peer_ids, read_ids(scratch.file("ids")));
    row.difference = first_difference(documents, ids, peer_ids);
    row.ids_equal = row.difference.empty();
  }
  return row;
}

std::string to_json(const std::vector<TokenizerBenchRow>& rows) {
  std::string out = "{\"rows\":[";
  for (const TokenizerBenchRow& row : rows) {
    out += out.back() == '[' ? "" : ",";
    out += fmt::format(
        "{{\"file\":\"{}\",\"family\":\"{}\",\"bytes\":{},\"documents\":{},\"tokens\":{},"
        "\"build_s\":{:.4f},\"cold_mb_s\":{:.2f},\"warm_mb_s\":{:.2f},\"peer_mb_s\":{:.3f},"
        "\"ratio\":{:.2f},\"ids_equal\":{}}}",
        row.file,
        row.family,
        row.bytes,
        row.documents,
        row.tokens,
        row.build_s,
        row.cold_mb_s,
        row.warm_mb_s,
        row.peer_mb_s,
        row.ratio,
        row.ids_equal);
  }
  return out + "]}";
}

}  // namespace baton::bench
