// NIXL and Mooncake beside Baton: the same descriptors between two processes of this host, in
// turns, over tcp and shared memory. The peers come from their published wheels by
// tools/peers/nixl and tools/peers/mooncake; tools/peers/transfer_loop.py drives them.
//
// A peer's time is from posting a prepared transfer to its completion as the initiator knows it;
// ours from begin to flushed, received and counted at the other side. While one side has its turn
// the processes of the others are stopped.
//
// Thread: the caller's. Failure: a peer that cannot run here says why in its row; ours as in
// transfer_pair.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

struct TransferPeersOptions {
  std::vector<std::string> transports{"tcp", "shm"};
  // Bytes of a descriptor, descriptors.
  std::vector<std::pair<std::size_t, std::uint32_t>> cells{{1048576, 64}, {4096, 4096}};
  std::uint32_t repetitions = 11;
  std::size_t window_bytes = std::size_t{8} << 20;
  std::string probe;    // baton-transfer-probe; empty: beside this program
  std::string folder;   // holds nixl/ and mooncake/ as their scripts made them
  std::string scripts;  // holds those scripts, run for a peer that is missing; empty: none is run
  std::function<void(std::string_view)> progress;
};

struct TransferPeerRow {
  std::string transport;
  std::size_t bytes = 0;
  std::uint32_t descriptors = 0;
  std::string peer;
  std::string setting;  // UCX's settings, if any, and the direction
  double ms = 0;        // median; 0 with an error
  double spread = 0;    // quartile to quartile, as a share of the median
  double cpu_s_per_gib = 0;
  double ours_ms = 0;  // in the same cell
  double ours_spread = 0;
  double ours_cpu_s_per_gib = 0;
  std::string error;  // why it cannot run here
  double ours_to_peer() const { return ms > 0 ? ours_ms / ms : 0; }
};

Result<std::vector<TransferPeerRow>> run_transfer_peers(const TransferPeersOptions& options);
// A JSON array.
std::string to_json(const std::vector<TransferPeerRow>& rows);

}  // namespace baton::bench
