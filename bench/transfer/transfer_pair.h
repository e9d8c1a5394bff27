// Two processes between which blocks move in turns: by Baton's data plane, by the bare UCX loops,
// and, within one process, by memcpy. Every block is a message of its own (no two are neighbours on
// both sides), so that a turn shows what one descriptor of that size costs.
//
// A turn is timed from its first call until this process knows that every byte is in place: for
// Baton flushed, received and counted by the other process, which says so over a pipe; for active
// messages received, said the same way; for puts flushed, which needs no word.
//
// Owner: one measurement. Thread: the caller's, which stays on the first half of the processors
// while this exists; the other process is baton-transfer-probe, on the second half.
// Failure: IoError when that cannot be started or dies; UCX's words.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/transfer/raw_ucx.h"
#include "bench/transfer/transfer_arena.h"
#include "bench/transfer/transfer_process.h"
#include "bench/transfer/transfer_turn.h"
#include "common/base/error.h"
#include "transfer/transport.h"

namespace baton::bench {

struct TransferPairOptions {
  std::string probe;  // program; empty: beside this one
  std::string transport;
  std::size_t bytes = 0;  // of a descriptor
  std::uint32_t descriptors = 0;
  std::size_t window_bytes = std::size_t{8} << 20;
  bool raw = true;  // the bare loops too
};

class TransferPair {
 public:
  static Result<std::unique_ptr<TransferPair>> create(const TransferPairOptions& options);

  Result<Turn> turn_ours();
  // REQUIRES: raw.
  Result<Turn> turn_raw_am();
  Result<Turn> turn_raw_put();
  Turn turn_memcpy();
  // True when the last turn of ours brought the right bytes to the right places.
  Result<bool> verify();
  TransferProcess& process() { return *process_; }

 private:
  explicit TransferPair(const TransferPairOptions& options) : options_(options) {}
  Status start();
  Result<Turn> landed(std::chrono::steady_clock::time_point begin, double cpu);

  const TransferPairOptions options_;
  std::optional<OnHalf> half_;  // of the caller's thread
  std::unique_ptr<TransferArena> arena_;
  std::unique_ptr<TransferArena> copy_;
  std::unique_ptr<TransferProcess> process_;
  std::unique_ptr<transfer::Transport> ours_;
  std::unique_ptr<RawUcx> am_;
  std::unique_ptr<RawUcx> put_;
  std::shared_ptr<transfer::Peer> peer_;
  std::uint32_t leases_ = 0;
};

// Where baton-transfer-probe is: `given`, or beside this program.
std::string transfer_probe_program(const std::string& given);

}  // namespace baton::bench
