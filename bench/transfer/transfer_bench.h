// How fast KV blocks move between two processes of this machine, beside bare UCX loops with the
// same messages, window and buffers, all in turns: the better of puts and active messages is what a
// row is a share of.
//
// Thread: the caller's; starts one child process (baton-transfer-probe) for each row and ends it.
// Failure: see transfer_pair.h.
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
  // Empty: as many as make 64 MiB, at most 4096; of 4 KiB 1 to 16384.
  std::vector<std::uint32_t> descriptors;
  std::uint32_t repetitions = 21;  // turns of each; the median counts
  std::size_t window_bytes = std::size_t{8} << 20;
  std::string probe;  // program; empty: beside this one
  std::function<void(std::string_view)> progress;
};

struct TransferBenchRow {
  std::string transport;
  std::size_t bytes = 0;  // of a descriptor
  std::uint32_t descriptors = 0;
  double gb_per_s = 0;
  double raw_gb_per_s = 0;  // the better of the next two
  double raw_put_gb_per_s = 0;
  double raw_am_gb_per_s = 0;
  double memcpy_gb_per_s = 0;  // one thread
  double ratio_to_raw = 0;
  double us_per_op = 0;
  double raw_us_per_op = 0;
  double cpu_s_per_gib = 0;  // both processes
  double raw_cpu_s_per_gib = 0;
  double spread = 0;  // of our turns: quartile to quartile, as a share of the median
};

Result<std::vector<TransferBenchRow>> run_transfer_bench(const TransferBenchOptions& options);
// One line with its last brace open: further keys may follow.
std::string to_json(const std::vector<TransferBenchRow>& rows);

}  // namespace baton::bench
