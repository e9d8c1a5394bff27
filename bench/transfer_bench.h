// How fast KV blocks move between two processes of this machine, beside a bare UCX loop with the
// same messages, window and buffers, the two in turns. Every block is a message of its own (no two
// are neighbours), so a row shows what one descriptor of that size costs.
//
// Thread: the caller's; starts one child process (baton-transfer-probe, found beside the program)
// for each row and ends it. Failure: IoError when it cannot be started or dies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

struct TransferBenchOptions {
  std::vector<std::string> transports{"tcp", "shm"};
  std::vector<std::size_t> sizes{4096, 16384, 65536, 262144, 1048576, 4194304};
  std::vector<std::uint32_t> descriptors;  // empty: as many as make 64 MiB, at most 4096
  std::uint32_t repetitions = 9;           // turns of each side; the median counts
  std::size_t window_bytes = std::size_t{8} << 20;
  std::string probe;  // program; empty: beside this one
  std::function<void(std::string_view)> progress;
};

struct TransferBenchRow {
  std::string transport;
  std::size_t bytes = 0;  // of a descriptor
  std::uint32_t descriptors = 0;
  double gb_per_s = 0;
  double raw_gb_per_s = 0;
  double ratio_to_raw = 0;
  double us_per_op = 0;
  double cpu_s_per_gib = 0;  // both processes
  double raw_cpu_s_per_gib = 0;
};

Result<std::vector<TransferBenchRow>> run_transfer_bench(const TransferBenchOptions& options);
std::string to_json(const std::vector<TransferBenchRow>& rows);

// The child's side: serves one row over stdin and stdout.
int run_transfer_probe(const std::string& transport, std::size_t bytes, std::uint32_t blocks);

}  // namespace baton::bench
