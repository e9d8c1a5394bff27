// baton bench transfer: speed of the data plane between two processes, beside bare UCX loops,
// beside other transfer libraries, and hidden behind a prompt's computation.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "bench/transfer/transfer_bench.h"
#include "bench/transfer/transfer_layerwise.h"
#include "bench/transfer/transfer_peers.h"
#include "cli/cluster/local_cluster.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "common/config/catalogue.h"

namespace baton::cli {
namespace {

struct TransferArguments {
  bench::TransferBenchOptions options;
  std::string model = "smollm2-135m-instruct";
  std::uint32_t prompt_tokens = 2000;
  bool peers = false;
  bool layerwise = false;
  bool json = false;
};

void show_progress(std::string_view line) {
  fmt::print(stderr, "    {}\n", line);
}

// Twenty characters for the whole.
std::string bar(double share) {
  std::string out;
  for (int i = 0; i < static_cast<int>(std::clamp(share, 0.0, 1.2) * 20 + 0.5); ++i) {
    out += '#';
  }
  return out;
}

void print_rows(const std::vector<bench::TransferBenchRow>& rows) {
  fmt::print("{:<9} {:>8} {:>11} {:>7} {:>8} {:>7} {:>7} {:>6} {:>9} {:>9} {:>9} {:>6}\n",
             "transport",
             "bytes",
             "descriptors",
             "GB/s",
             "raw put",
             "raw am",
             "memcpy",
             "ratio",
             "us/op",
             "cpu s/GiB",
             "raw cpu",
             "spread");
  for (const bench::TransferBenchRow& row : rows) {
    fmt::print(
        "{:<9} {:>8} {:>11} {:>7.2f} {:>8.2f} {:>7.2f} {:>7.2f} {:>6.2f} {:>9.2f} {:>9.2f} "
        "{:>9.2f} {:>5.0f}% {}\n",
        row.transport,
        row.bytes,
        row.descriptors,
        row.gb_per_s,
        row.raw_put_gb_per_s,
        row.raw_am_gb_per_s,
        row.memcpy_gb_per_s,
        row.ratio_to_raw,
        row.us_per_op,
        row.cpu_s_per_gib,
        row.raw_cpu_s_per_gib,
        row.spread * 100,
        bar(row.ratio_to_raw));
  }
}

void print_peers(const std::vector<bench::TransferPeerRow>& rows) {
  fmt::print("\n{:<9} {:>8} {:>11} {:<9} {:<22} {:>8} {:>8} {:>10} {:>9} {:>9}\n",
             "transport",
             "bytes",
             "descriptors",
             "peer",
             "setting",
             "ms",
             "ours ms",
             "ours/peer",
             "cpu s/GiB",
             "ours");
  for (const bench::TransferPeerRow& row : rows) {
    fmt::print("{:<9} {:>8} {:>11} {:<9} {:<22} ",
               row.transport,
               row.bytes,
               row.descriptors,
               row.peer,
               row.setting);
    if (!row.error.empty()) {
      fmt::print("{:>8} {:>8.2f}  {}\n", "-", row.ours_ms, row.error);
      continue;
    }
    fmt::print("{:>8.2f} {:>8.2f} {:>10.2f} {:>9.2f} {:>9.2f}\n",
               row.ms,
               row.ours_ms,
               row.ours_to_peer(),
               row.cpu_s_per_gib,
               row.ours_cpu_s_per_gib);
  }
}

void print_layerwise(const bench::LayerwiseReport& report) {
  fmt::print(
      "{} tokens in {} chunks of at most {}, {:.1f} MiB over {}\n"
      "  prefill                            {:>9.2f} ms   (without a transfer {:.2f} ms)\n"
      "  gone before the last layer's end   {:>9.2f} %    {}\n"
      "  gone when the first token is there {:>9.2f} %\n"
      "  from the first token to Commit     {:>9.2f} ms   (received and counted: {:.2f} ms)\n"
      "  digest of all blocks, both sides   {:>9.2f} %    of prefill, +- {:.2f}\n"
      "  the digest alone                   {:>9.2f} GB/s (both sides: {:.2f} % of prefill)\n",
      report.prompt_tokens,
      report.chunks,
      report.chunk_tokens,
      static_cast<double>(report.bytes) / static_cast<double>(1 << 20),
      report.transport,
      report.prefill_ms,
      report.alone_ms,
      report.hidden_share * 100,
      bar(report.hidden_share),
      report.hidden_share_at_end * 100,
      report.commit_ms,
      report.landed_ms,
      report.digest_cost_share * 100,
      report.digest_cost_spread * 50,
      report.digest_gb_per_s,
      report.digest_raw_share * 100);
}

int run_layerwise(const TransferArguments& arguments) {
  const auto path = model_argument(arguments.model);
  if (!path) {
    return report("bench transfer", path.error());
  }
  const bool chosen = arguments.options.transports.size() == 1;
  const auto result =
      bench::run_layerwise({.model = *path,
                            .prompt_tokens = arguments.prompt_tokens,
                            .transport = chosen ? arguments.options.transports[0] : "tcp",
                            .progress = show_progress});
  if (!result) {
    return report("bench transfer", result.error());
  }
  print_layerwise(*result);
  if (arguments.json) {
    fmt::print("{{\"rows\": [], \"layerwise\": {}}}\n", bench::to_json(*result));
  }
  return kDone;
}

int run(const TransferArguments& arguments) {
  if (arguments.layerwise) {
    return run_layerwise(arguments);
  }
  bench::TransferBenchOptions options = arguments.options;
  options.progress = show_progress;
  const auto rows = bench::run_transfer_bench(options);
  if (!rows) {
    return report("bench transfer", rows.error());
  }
  print_rows(*rows);
  std::string json = bench::to_json(*rows);
  if (arguments.peers) {
    bench::TransferPeersOptions peers;
    peers.transports = options.transports;
    peers.repetitions = options.repetitions;
    peers.folder = CataloguePlaces::from_environment().cache + "/peers";
    // In a checkout the program lies in build/*/bin.
    peers.scripts = std::filesystem::path(program_folder()) / "../../../tools/peers";
    peers.progress = show_progress;
    const auto beside = bench::run_transfer_peers(peers);
    if (!beside) {
      return report("bench transfer", beside.error());
    }
    print_peers(*beside);
    json += ", \"peers\": " + bench::to_json(*beside);
  }
  if (arguments.json) {
    fmt::print("{}}}\n", json);
  }
  return kDone;
}

}  // namespace

void add_bench_transfer(CLI::App& group, Action& chosen) {
  auto arguments = std::make_shared<TransferArguments>();
  CLI::App* command = group.add_subcommand("transfer", "Speed of the data plane");
  command->add_option("--transport", arguments->options.transports, "tcp, shm")
      ->capture_default_str()
      ->delimiter(',');
  command->add_option("--bytes", arguments->options.sizes, "Bytes of a descriptor")
      ->capture_default_str()
      ->delimiter(',');
  command
      ->add_option("--descriptors",
                   arguments->options.descriptors,
                   "Descriptors of a transfer; default: 64 MiB of them, at most 4096; of 4 KiB 1, "
                   "16, 256, 4096 and 16384")
      ->check(CLI::Range(1, 16384))
      ->delimiter(',');
  command
      ->add_option(
          "--repetitions", arguments->options.repetitions, "Turns of each side; the median counts")
      ->capture_default_str();
  command->add_flag("--peers",
                    arguments->peers,
                    "Also 64 x 1 MiB and 4096 x 4 KiB beside NIXL and Mooncake, which are fetched "
                    "by tools/peers when missing");
  command->add_flag("--layerwise",
                    arguments->layerwise,
                    "Instead: the share of a prompt's transfer that hides behind its computation");
  command->add_option("--model", arguments->model, "Of --layerwise: catalogue name or GGUF file")
      ->capture_default_str();
  command->add_option("--prompt-tokens", arguments->prompt_tokens, "Of --layerwise")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer(
      "A row is a share of the better of two bare UCX loops, puts and active messages, that move\n"
      "the same blocks in turns with ours. The default takes a minute or two.\n"
      "Examples:\n"
      "  baton bench transfer --json\n"
      "  baton bench transfer --transport tcp --bytes 65536,1048576 --descriptors 1,16,64\n"
      "  baton bench transfer --peers --json\n"
      "  baton bench transfer --layerwise --json");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
