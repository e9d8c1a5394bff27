// The receiving process of the transfer benchmarks. It obeys one line at a time:
//   ours LEASE  opens a lease on every block; "open", then "landed CPU_SECONDS" once all is in
//   lease LEASE MODE  the same with digests of that mode, once the next line "commit MODE DIGEST"
//   came am COUNT    the same with COUNT active messages of the bare loop put 0       "open",
//   serves puts until the next line comes, then "landed CPU_SECONDS" clear 0     zeroes the blocks:
//   "cleared" digest 0    "digest XXH3" of all blocks
//
// Thread: main. Failure: an Error for the process's last words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/error.h"

namespace baton::bench {

struct TransferProbeOptions {
  std::string transport;
  std::size_t bytes = 0;
  std::uint32_t blocks = 0;
  std::uint32_t layers = 1;
  bool raw = true;
  bool half = false;  // keeps to the second half of the processors
};

Status run_transfer_probe(const TransferProbeOptions& options);

}  // namespace baton::bench
