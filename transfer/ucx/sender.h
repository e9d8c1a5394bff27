// Links to other processes and the sends that are open on them. Each turn posts what the windows
// admit, one message a send in turns, and runs the callbacks that have become due.
//
// Owner: UcxTransport. Thread: the reactor, but for the atomics of a Link and the counters.
// Failure: a lost link fails its sends with PeerDead; state that UCX may still touch is kept until
// UCX has given it back.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/types/kv_layout.h"
#include "transfer/entries.h"
#include "transfer/ucx/endpoint.h"
#include "transfer/ucx/reactor.h"
#include "transfer/ucx/worker.h"

namespace baton::transfer {

// A connection to one peer, shared with the user's Peer handle, which reads the atomics alone.
struct Link {
  std::atomic<bool> is_up = true;
  std::atomic<Lane> lane = Lane::Unknown;

  // The reactor's:
  std::function<void(Error)> failed;
  std::unique_ptr<UcxEndpoint> endpoint;
  ucs_status_t lost = UCS_OK;  // set by UCX's callback, acted on after progress
  UniqueFd process;            // readable once the peer's process has ended, when of this host
  bool is_closing = false;
  void* close_request = nullptr;
  std::size_t operations = 0;  // outstanding on the endpoint
};

struct Send {
  Send(const KvGrant& grant, std::uint32_t layers, PlanLimits limits, std::size_t window)
      : entry(grant, layers, limits, window) {}
  SendEntry entry;
  std::shared_ptr<Link> link;
};

class UcxSender {
 public:
  struct Counters {
    std::atomic<std::uint64_t> bytes = 0;
    std::atomic<std::uint64_t> failed = 0;
    std::atomic<std::uint64_t> open = 0;
  };

  explicit UcxSender(const KvArenaView& arena);
  ~UcxSender();
  UcxSender(const UcxSender&) = delete;
  UcxSender& operator=(const UcxSender&) = delete;

  // Set once before the reactor starts; all outlive every operation.
  void attach(UcxWorker* worker, ucp_mem_h memory, Reactor* reactor);

  void connect(const std::shared_ptr<Link>& link, const PeerAddress& address);
  // The user has dropped the link.
  void release(const std::shared_ptr<Link>& link);
  void begin(const std::shared_ptr<Send>& send);
  // Something about a send has changed: the next turn looks at it.
  void touch();
  // Posts and notifies; true when there was something to do.
  bool turn();

  bool has_traffic() const { return !active_.empty(); }
  void fail_all(const Error& error);
  // Starts closing every link.
  void close_all();
  // No operation and no close is outstanding.
  bool is_idle() const { return active_.empty() && closing_.empty(); }
  // The worker is gone: nothing outstanding will end by itself.
  void abandon();
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
  Status open_link(const std::shared_ptr<Link>& link, const PeerAddress& address);
  void lose(Link& link, const Error& error);
  void start_close(const std::shared_ptr<Link>& link, bool force);
  void check_links();
  bool reap();

  const KvArenaView arena_;
  UcxWorker* worker_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  Reactor* reactor_ = nullptr;
  std::vector<std::shared_ptr<Send>> sends_;
  std::vector<std::shared_ptr<Link>> links_;    // open
  std::vector<std::shared_ptr<Link>> closing_;  // UCX may still call back
  std::vector<std::unique_ptr<Op>> active_;     // operations outstanding
  std::vector<std::unique_ptr<Op>> spare_;
  bool is_dirty_ = false;
  bool has_lost_ = false;  // a link's `lost` was set
  Counters counters_;
};

}  // namespace baton::transfer
