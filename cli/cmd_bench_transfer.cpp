// baton bench transfer: speed of the data plane between two processes, beside a bare UCX loop.
#include <fmt/format.h>

#include <memory>

#include "bench/transfer_bench.h"
#include "cli/command.h"

namespace baton::cli {
namespace {

struct TransferArguments {
  bench::TransferBenchOptions options;
  bool json = false;
};

int run(const TransferArguments& arguments) {
  bench::TransferBenchOptions options = arguments.options;
  options.progress = [](std::string_view line) { fmt::print(stderr, "    {}\n", line); };
  const auto rows = bench::run_transfer_bench(options);
  if (!rows) {
    return report("bench transfer", rows.error());
  }
  fmt::print("{:<9} {:>9} {:>11} {:>8} {:>8} {:>6} {:>9} {:>9} {:>9}\n",
             "transport",
             "bytes",
             "descriptors",
             "GB/s",
             "raw",
             "ratio",
             "us/op",
             "cpu s/GiB",
             "raw cpu");
  for (const bench::TransferBenchRow& row : *rows) {
    fmt::print("{:<9} {:>9} {:>11} {:>8.2f} {:>8.2f} {:>6.2f} {:>9.2f} {:>9.2f} {:>9.2f}\n",
               row.transport,
               row.bytes,
               row.descriptors,
               row.gb_per_s,
               row.raw_gb_per_s,
               row.ratio_to_raw,
               row.us_per_op,
               row.cpu_s_per_gib,
               row.raw_cpu_s_per_gib);
  }
  if (arguments.json) {
    fmt::print("{}\n", bench::to_json(*rows));
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
                   "Descriptors of a transfer; default: 64 MiB of them, at most 4096")
      ->delimiter(',');
  command
      ->add_option(
          "--repetitions", arguments->options.repetitions, "Turns of each side; the median counts")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "End with one JSON line");
  command->footer("Examples:\n  baton bench transfer --json --transport tcp --bytes 65536,1048576");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
