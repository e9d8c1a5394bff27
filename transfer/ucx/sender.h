// Sends that are open on links, each by the path of its link. Each turn posts what the windows
// admit, one message a send in turns, and runs the callbacks that have become due.
//
// Owner: UcxTransport. Thread: the reactor, but for the counters. Failure: a lost link fails its
// sends with PeerDead; state that UCX may still touch is kept until UCX has given it back.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <vector>

#include "common/types/kv_layout.h"
#include "transfer/entries.h"
#include "transfer/ucx/am_path.h"
#include "transfer/ucx/links.h"
#include "transfer/ucx/put_path.h"

namespace baton::transfer {

class UcxSender {
 public:
  // `memory` is the arena's; all outlive every operation.
  UcxSender(const KvArenaView& arena,
            UcxContext& context,
            const UcxMemory& memory,
            Reactor& reactor);
  ~UcxSender();
  UcxSender(const UcxSender&) = delete;
  UcxSender& operator=(const UcxSender&) = delete;

  // Chooses the link's path too.
  void connect(const LinkPtr& link, const PeerAddress& address);
  // The user needs it no more.
  void release(const LinkPtr& link) { links_.release(link); }
  void disconnect(const LinkPtr& link) { links_.disconnect(link); }
  void begin(const std::shared_ptr<Send>& send);
  // Something about a send has changed: the next turn looks at it.
  void touch() { paths_.is_dirty = true; }
  // The same for commands: after the end there is no reactor that would make the turn.
  void touch_now();
  unsigned progress() { return links_.progress(); }
  bool arm() { return links_.arm(); }
  // Posts and notifies; true when there was something to do.
  bool turn();
  bool has_traffic() const { return !paths_.ops.is_empty(); }

  // Fails what is open and starts closing every link; later calls fail at once.
  void stop();
  // After stop: nothing is left that UCX may touch.
  bool is_over() const { return links_.is_empty(); }
  const PathContext::Counters& counters() const { return paths_.counters; }

 private:
  Status open(const LinkPtr& link, const PeerAddress& address);
  Status choose_path(const LinkPtr& link, const PutOffer& offer);
  DataPath& path_of(const Link& link);
  void post();
  void on_lost(const Link& link, const Error& error);
  bool reap();

  UcxContext& ucx_;
  PathContext paths_;
  UcxAmPath am_{paths_};
  UcxRdmaPutPath rdma_{paths_};
  ShmPutPath shm_{paths_};
  UcxLinks links_;
  std::vector<std::shared_ptr<Send>> sends_;
  bool is_stopped_ = false;
};

}  // namespace baton::transfer
