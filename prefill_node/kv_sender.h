// Brings one request's keys and values to the blocks that a decode node granted, and commits them.
//
//   Connecting -> Streaming -> Flushing -> Committing -> Done
//        any of them -> Aborting -> Done
//
// Blocks go out layer by layer while later layers are computed, when the link is up by then; what
// was computed before it was up follows at once. Blocks below the grant's prefix_blocks are never
// sent. The source blocks must stay as they are until on_committed, or until `abort` is done.
//
// Owner: one Job. Thread: control strand; a LayerSend runs on the engine thread. Failure: on_failed
// once, then the owner calls `abort`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/exec/executor.h"
#include "common/types/kv_grant.h"
#include "common/types/kv_layout.h"
#include "prefill_node/decode_links.h"
#include "transfer/transport.h"

namespace baton::prefill_node {

// What one step adds: posted for each layer from the engine thread.
struct LayerSend {
  std::shared_ptr<transfer::LeaseSender> sender;
  std::uint32_t first = 0;  // counted from the grant's prefix_blocks
  std::vector<BlockId> blocks;

  void post(std::uint32_t layer) const { sender->send_layer(layer, first, blocks); }
};

struct CommitFacts {
  std::uint32_t choice = 0;
  TokenId first_token = 0;
  std::uint32_t first_index = 0;
  std::uint32_t token_count = 0;
};

enum class SendState : std::uint8_t {
  Connecting,
  Streaming,
  Flushing,
  Committing,
  Aborting,
  Done,
};

class KvSender {
 public:
  struct Handlers {
    std::function<void(std::uint64_t bytes)> on_committed;
    std::function<void(const Error&)> on_failed;
  };

  // `total_blocks`: of the whole context, the grant's prefix included.
  KvSender(Executor& executor,
           transfer::Transport& transport,
           DecodeLinks& links,
           KvLayout layout,
           KvGrant grant,
           std::uint32_t total_blocks,
           Handlers handlers);
  KvSender(const KvSender&) = delete;
  KvSender& operator=(const KvSender&) = delete;
  ~KvSender();

  void start();
  // The first `complete` blocks of the table hold all layers: sends those not sent yet.
  void blocks_complete(std::span<const BlockId> table, std::uint32_t complete);
  // The step about to run completes the table's blocks up to `complete`: what each layer sends.
  // Nothing while there is no link, or nothing new; then `blocks_complete` sends it afterwards.
  std::optional<LayerSend> plan_step(std::span<const BlockId> table, std::uint32_t complete);
  // Every block was given. Flushes, then commits.
  void commit(const CommitFacts& facts);
  // Ends the lease; `done` runs, later, once no block is read any more. Neither handler runs after.
  // REQUIRES: called at most once.
  void abort(const std::string& reason, std::function<void()> done);

  SendState state() const { return state_; }
  const KvGrant& grant() const { return grant_; }

 private:
  void on_up();
  void fail(const Error& why);
  void send_pending();
  void flush();
  void flushed(Result<std::uint64_t> bytes);
  void send_commit(std::uint64_t bytes);
  void quiesced();
  void post(std::function<void()> task);

  Executor& executor_;
  transfer::Transport& transport_;
  DecodeLinks& links_;
  const KvLayout layout_;
  const KvGrant grant_;
  const std::uint32_t total_blocks_;
  const Handlers handlers_;

  SendState state_ = SendState::Connecting;
  std::optional<UserId> user_;
  std::shared_ptr<transfer::LeaseSender> sender_;  // null until up, and when nothing is to be sent
  std::vector<BlockId> complete_;                  // blocks whose every layer is computed
  std::uint32_t num_sent_;                         // leading blocks that need no more sending
  std::optional<CommitFacts> facts_;
  TimePoint commit_asked_{};
  bool has_failed_ = false;
  std::function<void()> aborted_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::prefill_node
