// A session together with the callbacks that its user waits on: what every Transport keeps for an
// open lease and for an open send. `notify` runs what has become due, each callback once.
//
// Owner: a transport. Thread: its owner's. Failure: see transport.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "transfer/receiver_session.h"
#include "transfer/sender_session.h"
#include "transfer/transport.h"

namespace baton::transfer {

class LeaseEntry {
 public:
  using Complete = std::function<void(Result<LeaseReceiver::Done>)>;

  LeaseEntry(LeaseId lease,
             Epoch epoch,
             const KvArenaView& arena,
             std::vector<BlockRun> runs,
             DigestMode digest)
      : session(lease, epoch, arena, std::move(runs), digest) {}

  void expect(const Sent& sent, Complete complete);
  // `fenced` may be empty.
  void revoke(std::function<void()> fenced);
  void notify();

  ReceiverSession session;

 private:
  Complete complete_;
  bool is_expected_ = false;
  std::vector<std::function<void()>> fenced_;
};

class SendEntry {
 public:
  using Flushed = std::function<void(Result<Sent>)>;

  SendEntry(const KvGrant& grant, std::uint32_t layers, PlanLimits limits, std::size_t window)
      : session(grant, layers, limits, window) {}

  void finish(Flushed flushed);
  // `quiesced` may be empty.
  void abort(std::function<void()> quiesced);
  void notify();
  // Counts its moves together with those of other sends. REQUIRES: before the first notify.
  void share_moves(std::shared_ptr<std::atomic<std::uint64_t>> moves) { moves_ = std::move(moves); }
  Progress progress() const { return {is_waiting_, *moves_}; }  // any thread, as of `notify`

  SenderSession session;

 private:
  std::shared_ptr<std::atomic<std::uint64_t>> moves_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  std::atomic<bool> is_waiting_ = false;
  std::uint64_t counted_ = 0;  // of its bytes, in moves_
  Flushed flushed_;
  std::vector<std::function<void()>> quiesced_;
};

}  // namespace baton::transfer
