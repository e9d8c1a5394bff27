#include "bench/transfer/transfer_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "bench/transfer/transfer_pair.h"
#include "bench/transfer/transfer_process.h"
#include "bench/transfer/transfer_turn.h"
#include "cli/process/child_process.h"

namespace baton::bench {
namespace {

namespace fs = std::filesystem;

// A peer under one setting of UCX.
struct Variant {
  std::string peer;
  std::string setting;
  std::vector<std::pair<std::string, std::string>> environment;
};

std::vector<Variant> variants(const std::string& transport) {
  std::vector<std::pair<std::string, std::string>> nixl{{"NIXL_LOG_LEVEL", "ERROR"}};
  if (transport == "shm") {
    // NIXL asks for peer error handling, which shared memory has only with this.
    nixl.emplace_back("UCX_MM_ERROR_HANDLING", "y");
  }
  auto no_rendezvous = nixl;
  no_rendezvous.emplace_back("UCX_RNDV_THRESH", "inf");
  return {{"nixl", "default", nixl},
          {"nixl", "rndv_thresh=inf", no_rendezvous},
          {"mooncake",
           "default",
           // Its queues refuse a batch of 4096 otherwise.
           {{"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", "8192"},
            {"MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER", "8192"}}}};
}

Status install(const TransferPeersOptions& options, const std::string& peer) {
  const fs::path loop = fs::path(options.folder) / peer / "transfer_loop.py";
  std::error_code ignored;
  if (fs::exists(loop, ignored)) {
    return {};
  }
  const fs::path script = fs::path(options.scripts) / peer;
  if (options.scripts.empty() || !fs::exists(script, ignored)) {
    return fail(ErrorCode::NotFound, fmt::format("not installed: run tools/peers/{}", peer));
  }
  if (options.progress) {
    options.progress(fmt::format("installing {} by {}", peer, script.string()));
  }
  const fs::path log = fs::temp_directory_path() / fmt::format("baton-peer-{}.log", peer);
  BATON_ASSIGN(const auto output,
               cli::run_to_end(
                   {.command = {script.string()}, .output_file = log.string(), .append = false}));
  if (!output.exit.clean() || !fs::exists(loop, ignored)) {
    return fail(ErrorCode::Unavailable,
                fmt::format("{} failed; its log is {}", script.string(), log.string()));
  }
  return {};
}

// One peer process pair and the rows it fills.
struct Contender {
  std::unique_ptr<TransferProcess> process;
  std::vector<std::pair<std::string, std::size_t>> verbs;  // and the row of each
};

class Cell {
 public:
  Cell(const TransferPeersOptions& options,
       std::string transport,
       std::size_t bytes,
       std::uint32_t descriptors)
      : options_(options),
        transport_(std::move(transport)),
        bytes_(bytes),
        descriptors_(descriptors) {}

  Result<std::vector<TransferPeerRow>> run() {
    for (const Variant& variant : variants(transport_)) {
      enter(variant);  // before this process takes its half of the processors
    }
    BATON_ASSIGN(const auto pair,
                 TransferPair::create({.probe = options_.probe,
                                       .transport = transport_,
                                       .bytes = bytes_,
                                       .descriptors = descriptors_,
                                       .window_bytes = options_.window_bytes,
                                       .raw = false}));
    Turns ours;
    for (std::uint32_t i = 0; i <= options_.repetitions; ++i) {
      pair->process().resume();
      for (int turns = 0; turns < 2; ++turns) {  // the first warms the caches again
        BATON_ASSIGN(const Turn turn, pair->turn_ours());
        if (i > 0 && turns == 1) {
          ours.add(turn);
        }
      }
      if (i == 0) {
        BATON_ASSIGN(const bool is_right, pair->verify());
        if (!is_right) {
          return fail(ErrorCode::ChecksumMismatch, "a transfer brought wrong bytes");
        }
      }
      pair->process().pause();
      for (Contender& contender : contenders_) {
        take_turn(contender, i > 0);
      }
    }
    fill(ours);
    return rows_;
  }

 private:
  void enter(const Variant& variant) {
    TransferPeerRow row;
    row.transport = transport_;
    row.bytes = bytes_;
    row.descriptors = descriptors_;
    row.peer = variant.peer;
    row.setting = variant.setting;
    auto process = start(variant);
    if (!process) {
      row.error = process.error().message;
      rows_.push_back(row);
      turns_.emplace_back();
      return;
    }
    Contender contender{std::move(*process), {}};
    for (const char* verb : {"write", "read"}) {
      row.setting = variant.setting + ' ' + verb;
      contender.verbs.emplace_back(verb, rows_.size());
      rows_.push_back(row);
      turns_.emplace_back();
    }
    contenders_.push_back(std::move(contender));
  }

  Result<std::unique_ptr<TransferProcess>> start(const Variant& variant) {
    BATON_TRY(install(options_, variant.peer));
    const fs::path folder = fs::path(options_.folder) / variant.peer;
    BATON_ASSIGN(auto process,
                 TransferProcess::start({(folder / "bin" / "python3").string(),
                                         (folder / "transfer_loop.py").string(),
                                         variant.peer,
                                         transport_,
                                         std::to_string(bytes_),
                                         std::to_string(descriptors_)},
                                        variant.environment,
                                        true));
    BATON_ASSIGN([[maybe_unused]] const auto ready, process->hear("ready"));
    process->pause();
    return process;
  }

  void take_turn(Contender& contender, bool counts) {
    if (contender.process == nullptr) {
      return;
    }
    contender.process->resume();
    for (const auto& [verb, row] : contender.verbs) {
      for (int turns = 0; turns < 2; ++turns) {
        contender.process->say(verb);
        auto words = contender.process->hear("landed");
        if (!words) {
          rows_[row].error = words.error().message;
          contender.process.reset();
          return;
        }
        Turn turn;
        *words >> turn.seconds >> turn.cpu_seconds;
        if (counts && turns == 1) {
          turns_[row].add(turn);
        }
      }
    }
    contender.process->pause();
  }

  void fill(const Turns& ours) {
    const double gib = static_cast<double>(bytes_) * descriptors_ / static_cast<double>(1 << 30);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      TransferPeerRow& row = rows_[i];
      row.ours_ms = ours.seconds() * 1e3;
      row.ours_spread = ours.spread();
      row.ours_cpu_s_per_gib = ours.cpu_seconds() / gib;
      if (!turns_[i].empty()) {
        row.ms = turns_[i].seconds() * 1e3;
        row.spread = turns_[i].spread();
        row.cpu_s_per_gib = turns_[i].cpu_seconds() / gib;
      }
    }
  }

  const TransferPeersOptions& options_;
  const std::string transport_;
  const std::size_t bytes_;
  const std::uint32_t descriptors_;
  std::vector<Contender> contenders_;
  std::vector<TransferPeerRow> rows_;
  std::vector<Turns> turns_;  // of each row
};

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
    }
    out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  return out;
}

}  // namespace

Result<std::vector<TransferPeerRow>> run_transfer_peers(const TransferPeersOptions& options) {
  if (options.repetitions == 0) {
    return fail(ErrorCode::InvalidArgument, "at least one repetition is needed");
  }
  std::vector<TransferPeerRow> rows;
  for (const std::string& transport : options.transports) {
    for (const auto& [bytes, descriptors] : options.cells) {
      BATON_ASSIGN(const auto cell, Cell(options, transport, bytes, descriptors).run());
      if (options.progress) {
        options.progress(fmt::format("{} {} x {}: {:.2f} ms, and {} rows of peers",
                                     transport,
                                     descriptors,
                                     bytes,
                                     cell.front().ours_ms,
                                     cell.size()));
      }
      rows.insert(rows.end(), cell.begin(), cell.end());
    }
  }
  return rows;
}

std::string to_json(const std::vector<TransferPeerRow>& rows) {
  std::string out = "[";
  for (const TransferPeerRow& row : rows) {
    out += fmt::format(
        "{}{{\"transport\": \"{}\", \"bytes\": {}, \"descriptors\": {}, \"peer\": \"{}\", "
        "\"setting\": \"{}\", \"ms\": {:.4f}, \"spread\": {:.4f}, \"cpu_s_per_gib\": {:.4f}, "
        "\"ours_ms\": {:.4f}, \"ours_spread\": {:.4f}, \"ours_cpu_s_per_gib\": {:.4f}, "
        "\"ours_to_peer\": {:.4f}, \"error\": \"{}\"}}",
        &row == rows.data() ? "" : ", ",
        row.transport,
        row.bytes,
        row.descriptors,
        row.peer,
        row.setting,
        row.ms,
        row.spread,
        row.cpu_s_per_gib,
        row.ours_ms,
        row.ours_spread,
        row.ours_cpu_s_per_gib,
        row.ours_to_peer(),
        escape(row.error));
  }
  return out + "]";
}

}  // namespace baton::bench
