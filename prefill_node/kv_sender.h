// Brings one request's keys and values to the blocks that a decode node granted, and commits them.
// Its states stand in send_state.h.
//
// Blocks go out layer by layer while later layers are computed, when the link is up by then; what
// was computed before it was up follows at once. Blocks below the grant's prefix_blocks are never
// sent. The source blocks must stay as they are until on_committed, or until `abort` is done.
// Blocks are counted in the grant's layout. Where that is not the own one, a block goes once the
// own blocks under it are full, so that no step still writes what is gathered.
//
// A transfer of which nothing moves, while the decode node's heartbeats come, fails with
// PeerStalled long before its request's deadline. Any transfer on the link that moves is proof
// enough: a lease may have to wait for others.
//
// Owner: one Job. Thread: control strand; a LayerSend runs on the engine thread. Failure: on_failed
// once, then the owner calls `abort`.
#pragma once

#include <chrono>
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
#include "prefill_node/send_state.h"
#include "transfer/transport.h"

namespace baton::prefill_node {

// What one step adds: posted for each layer from the engine thread.
struct LayerSend {
  std::shared_ptr<transfer::LeaseSender> sender;
  std::uint32_t first = 0;      // counted from the grant's prefix_blocks
  std::vector<BlockId> blocks;  // of equal layout
  // Of another layout: `count` blocks of the grant, out of this context.
  std::uint32_t count = 0;
  std::shared_ptr<const transfer::ContextBlocks> context;

  void post(std::uint32_t layer) const;
};

struct CommitFacts {
  std::uint32_t choice = 0;
  TokenId first_token = 0;
  std::uint32_t first_index = 0;
  std::uint32_t token_count = 0;
};

class KvSender {
 public:
  static constexpr std::chrono::milliseconds kQuietLimit{5'000};

  struct Handlers {
    std::function<void(std::uint64_t bytes)> on_committed;
    std::function<void(const Error&)> on_failed;
  };

  // `context`: tokens in all, the grant's prefix included. `digest`: that this node wants; the
  // decode node may want more.
  KvSender(Executor& executor,
           transfer::Transport& transport,
           DecodeLinks& links,
           KvLayout layout,
           KvGrant grant,
           std::uint32_t context,
           transfer::DigestMode digest,
           Handlers handlers);
  KvSender(const KvSender&) = delete;
  KvSender& operator=(const KvSender&) = delete;
  ~KvSender();

  // `is_bound`: as DecodeLinks::join.
  void start(bool is_bound = false);
  // The first `tokens` tokens in the table's blocks are there in all layers: sends what they
  // complete and was not sent yet.
  void computed(std::span<const BlockId> table, std::uint32_t tokens);
  // The step about to run computes up to `tokens`: what each layer sends. Nothing while there is no
  // link, or nothing new; then `computed` sends it afterwards.
  std::optional<LayerSend> plan_step(std::span<const BlockId> table, std::uint32_t tokens);
  // Every block was given. Flushes, then commits.
  void commit(const CommitFacts& facts);
  // Ends the lease; `done` runs, later, once no block is read any more. Neither handler runs after.
  // What does not come to rest within kQuietLimit takes the link to the decode node with it.
  // REQUIRES: called at most once.
  void abort(const std::string& reason, std::function<void()> done);

  SendState state() const { return state_; }
  const KvGrant& grant() const { return grant_; }

 private:
  // Blocks of the grant's layout, its prefix included, that may go once `tokens` are computed; the
  // tail block counts at the end.
  std::uint32_t complete_blocks(std::uint32_t tokens) const;
  LayerSend make_send(std::span<const BlockId> table, std::uint32_t tokens) const;
  // False: the event changes nothing now.
  bool apply(SendEvent event);
  transfer::DigestMode digest_mode() const;
  void on_up();
  void fail(const Error& why);
  void send_pending();
  void flush();
  void flushed(Result<transfer::Sent> sent);
  void send_commit(const transfer::Sent& sent);
  void quiesced();
  void watch();  // whether the transfer moves
  void post(std::function<void()> task);

  Executor& executor_;
  transfer::Transport& transport_;
  DecodeLinks& links_;
  const KvLayout layout_;
  const KvGrant grant_;
  const KvLayout target_;  // the grant's
  const std::uint32_t context_;
  const std::uint32_t total_blocks_;
  const transfer::DigestMode digest_;
  const Handlers handlers_;

  SendState state_ = SendState::Connecting;
  std::optional<UserId> user_;
  std::shared_ptr<transfer::LeaseSender> sender_;  // null until up, and when nothing is to be sent
  std::vector<BlockId> table_;                     // the context's blocks
  std::uint32_t computed_ = 0;                     // tokens of them with all layers
  std::uint32_t num_sent_;                         // leading blocks that need no more sending
  std::optional<CommitFacts> facts_;
  TimePoint commit_asked_{};
  bool has_failed_ = false;
  std::function<void()> aborted_;
  TimerHandle quiet_limit_;
  TimerHandle watch_;
  transfer::Progress seen_;
  TimePoint moved_{};  // when seen_ was seen first
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::prefill_node
