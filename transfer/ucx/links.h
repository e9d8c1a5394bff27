// Connections to other processes' inlets. Each has a UCX worker of its own: over shared memory a
// process that is killed while it writes into a worker's queue blocks that queue for good, so no
// two peers may share one, in either direction.
//
//   open ──error, or the peer's process ended──▶ lost ──▶ closing ──nothing outstanding──▶ gone
//   open ──released──▶ closing
// Closing that does not end in time ends by abandoning the worker. UCX 1.13 may end the process
// when a connection is closed before it is complete: a TCP one that is being refused, one over
// verbs whose first messages are still queued. So each is proven by a flush of its own, and one
// that is neither proven nor (tcp) lost yet is not closed, but given time, then abandoned. Over
// verbs UCX itself ends the process when a peer that is gone leaves a connection incomplete for
// long: such a one is given up before.
//
// Owner: UcxSender. Thread: the reactor, but for a Link's atomics. Failure: `open` says why;
// later a lost link is reported once.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transfer/message.h"
#include "transfer/process_watch.h"
#include "transfer/put_message.h"
#include "transfer/put_offer.h"
#include "transfer/shared_arena.h"
#include "transfer/ucx/endpoint.h"
#include "transfer/ucx/reactor.h"
#include "transfer/ucx/worker.h"

namespace baton::transfer {

struct Send;
struct PutBatch;

// Shared with the user's Peer handle, which reads the atomics alone.
struct Link {
  std::atomic<bool> is_up = true;
  std::atomic<Lane> lane = Lane::Unknown;
  const std::shared_ptr<std::atomic<std::uint64_t>> moves =  // Progress
      std::make_shared<std::atomic<std::uint64_t>>(0);

  // The reactor's:
  std::function<void(Error)> failed;  // the user's
  std::unique_ptr<UcxWorker> worker;
  std::unique_ptr<UcxEndpoint> endpoint;
  UniqueFd process;            // readable once the peer's process has ended, when of this host
  ucs_status_t lost = UCS_OK;  // set by UCX's callback, acted on after progress
  bool is_proven = false;      // the first flush has succeeded: the connection is complete
  std::chrono::steady_clock::time_point prove_limit;  // over verbs it is given up then
  bool is_given_up = false;                           // reported as lost
  bool is_closing = false;
  bool is_close_posted = false;
  void* close_request = nullptr;
  std::chrono::steady_clock::time_point close_limit;
  std::size_t operations = 0;  // outstanding on the endpoint, the proof's flush too

  // How bytes travel, and what a path that puts needs.
  PathKind path = PathKind::Am;
  EndpointLanes lanes;
  ProcessIdentity peer;
  PutOffer offer;
  ucp_rkey_h key = nullptr;             // for RdmaPut; destroyed with the worker
  std::unique_ptr<MappedArena> mapped;  // for ShmPut
  std::function<void(const PutMessage&)> answered;
  std::unordered_map<LeaseId, std::weak_ptr<Send>> asked;  // claims without an answer yet
  std::shared_ptr<PutBatch> batch;                         // puts without a flush yet
  std::size_t flushes = 0;                                 // of batches, under way
};
using LinkPtr = std::shared_ptr<Link>;

class UcxLinks {
 public:
  struct Events {
    std::function<void(Link&, const Error&)> lost;  // once a link, before it closes
    std::function<void(Link&)> abandoned;           // its operations will not end by themselves
  };

  // All outlive every link.
  UcxLinks(UcxContext& context, Reactor& reactor, Events events);
  ~UcxLinks();
  UcxLinks(const UcxLinks&) = delete;
  UcxLinks& operator=(const UcxLinks&) = delete;

  Status open(const LinkPtr& link, const PeerAddress& address);
  // The user needs it no more.
  void release(const LinkPtr& link);
  // The same while operations may be outstanding: they fail.
  void disconnect(const LinkPtr& link);
  void close_all();

  unsigned progress();
  bool arm();
  // Acts on what progress has found.
  void check();
  bool is_empty() const { return links_.empty(); }

 private:
  void lose(const LinkPtr& link, const Error& error);
  void start_close(const LinkPtr& link);
  void prove(Link& link);
  static void on_proven(void* request, ucs_status_t status, void* user_data);
  static ucs_status_t on_answer(void* arg,
                                const void* header,
                                std::size_t header_length,
                                void* data,
                                std::size_t length,
                                const ucp_am_recv_param_t* param);
  bool is_closed(const LinkPtr& link);

  UcxContext& context_;
  Reactor& reactor_;
  const Events events_;
  std::vector<LinkPtr> links_;  // open and closing
  bool needs_check_ = false;    // one was lost or is closing
};

}  // namespace baton::transfer
