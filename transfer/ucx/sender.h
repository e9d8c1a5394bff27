// Sends that are open on links. Each turn posts what the windows admit, one message a send in
// turns, and runs the callbacks that have become due.
//
// Owner: UcxTransport. Thread: the reactor, but for the counters. Failure: a lost link fails its
// sends with PeerDead; state that UCX may still touch is kept until UCX has given it back.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/types/kv_layout.h"
#include "transfer/entries.h"
#include "transfer/staging.h"
#include "transfer/ucx/links.h"

namespace baton::transfer {

struct Send {
  Send(const KvGrant& grant, std::uint32_t layers, PlanLimits limits, std::size_t window)
      : entry(grant, layers, limits, window) {}
  SendEntry entry;
  LinkPtr link;
  std::unique_ptr<Staging> staging;  // null: the grant's blocks lie as the arena's
};

class UcxSender {
 public:
  struct Counters {
    std::atomic<std::uint64_t> bytes = 0;
    std::atomic<std::uint64_t> failed = 0;
    std::atomic<std::uint64_t> open = 0;
  };

  // `memory` is the arena's; all outlive every operation.
  UcxSender(const KvArenaView& arena, UcxContext& context, ucp_mem_h memory, Reactor& reactor);
  ~UcxSender();
  UcxSender(const UcxSender&) = delete;
  UcxSender& operator=(const UcxSender&) = delete;

  void connect(const LinkPtr& link, const PeerAddress& address);
  // The user needs it no more.
  void release(const LinkPtr& link) { links_.release(link); }
  void disconnect(const LinkPtr& link) { links_.disconnect(link); }
  void begin(const std::shared_ptr<Send>& send);
  // Something about a send has changed: the next turn looks at it.
  void touch() { is_dirty_ = true; }
  // The same for commands: after the end there is no reactor that would make the turn.
  void touch_now();
  unsigned progress() { return links_.progress(); }
  bool arm() { return links_.arm(); }
  // Posts and notifies; true when there was something to do.
  bool turn();
  bool has_traffic() const { return !active_.empty(); }

  // Fails what is open and starts closing every link; later calls fail at once.
  void stop();
  // After stop: nothing is left that UCX may touch.
  bool is_over() const { return links_.is_empty(); }
  const Counters& counters() const { return counters_; }

 private:
  struct Op;
  static void on_sent(void* request, ucs_status_t status, void* user_data);
  Op& make_op(const std::shared_ptr<Send>& send);
  void transmit(const std::shared_ptr<Send>& send, const Piece& piece);
  void flush(const std::shared_ptr<Send>& send);
  // Takes what an operation's posting call returned.
  void posted(Op& op, ucs_status_ptr_t request);
  void finish(Op& op, ucs_status_t status);
  void on_lost(const Link& link, const Error& error);
  void on_abandoned(const Link& link);
  bool reap();

  const KvArenaView arena_;
  const ucp_mem_h memory_;
  UcxLinks links_;
  std::vector<std::shared_ptr<Send>> sends_;
  std::vector<std::unique_ptr<Op>> active_;  // operations outstanding
  std::vector<std::unique_ptr<Op>> spare_;
  std::size_t spare_staged_ = 0;  // bytes of buffers that spare_ keeps
  bool is_dirty_ = false;
  bool is_stopped_ = false;
  Counters counters_;
};

}  // namespace baton::transfer
