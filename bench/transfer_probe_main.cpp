// baton-transfer-probe TRANSPORT BYTES BLOCKS: the receiving process of `baton bench transfer`.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "bench/transfer_bench.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: baton-transfer-probe TRANSPORT BYTES BLOCKS\n");
    return 2;
  }
  return baton::bench::run_transfer_probe(
      argv[1],
      std::strtoull(argv[2], nullptr, 10),
      static_cast<std::uint32_t>(std::strtoul(argv[3], nullptr, 10)));
}
