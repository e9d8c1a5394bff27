// baton-transfer-probe TRANSPORT BYTES BLOCKS [LAYERS [raw|plain [half]]]: the receiving process of
// `baton bench transfer`.
#include <fmt/format.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bench/transfer/transfer_probe.h"

int main(int argc, char** argv) {
  if (argc < 4 || argc > 7) {
    fmt::print(stderr,
               "usage: baton-transfer-probe TRANSPORT BYTES BLOCKS [LAYERS [raw|plain [half]]]\n");
    return 2;
  }
  // It spins while it receives: nobody may leave it behind. (The bench pauses it by signals, so
  // that the end of its input would not be noticed.)
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto number = [&](int i) {
    return static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10));
  };
  baton::bench::TransferProbeOptions options;
  options.transport = argv[1];
  options.bytes = number(2);
  options.blocks = number(3);
  options.layers = argc > 4 ? number(4) : 1;
  options.raw = argc <= 5 || std::string_view(argv[5]) == "raw";
  options.half = argc > 6;
  const auto status = baton::bench::run_transfer_probe(options);
  if (!status) {
    fmt::print(stderr, "baton-transfer-probe: {}\n", status.error().message);
    return 1;
  }
  return 0;
}
