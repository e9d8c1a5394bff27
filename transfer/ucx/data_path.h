// How the bytes of a send travel. Three paths behind one interface; the sender's session and its
// plans are the same for all. A link has one path, chosen when it opens by what its lanes can prove
// (choose_path); the receiver has a say through its offer.
//
// Owner: UcxSender. Thread: the reactor. Failure: an operation that fails fails its send's session;
// state that UCX may still touch is kept in UcxOps until UCX has given it back.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/types/kv_layout.h"
#include "transfer/plan.h"
#include "transfer/put_message.h"
#include "transfer/ucx/ops.h"

namespace baton::transfer {

// What must hold before the receiver may use revoked blocks again without the writer's word.
struct PathCaps {
  bool fences_on_close = false;        // closing the receiver's end stops the writer
  bool needs_target_progress = false;  // bytes land only while the receiver makes progress
  bool has_checked_writes = false;     // the receiver checks each message before a byte moves
};
PathCaps caps_of(PathKind path);

// What the paths share.
struct PathContext {
  struct Counters {
    std::atomic<std::uint64_t> bytes = 0;
    std::atomic<std::uint64_t> failed = 0;
    std::atomic<std::uint64_t> open = 0;
  };
  KvArenaView arena;
  ucp_mem_h memory = nullptr;  // the arena's
  ucs_memory_type_t memory_type = UCS_MEMORY_TYPE_HOST;
  UcxOps ops;
  Counters counters;
  bool is_dirty = false;  // something about a send has changed: the next turn looks at it
};

class DataPath {
 public:
  explicit DataPath(PathContext& context) : context_(context) {}
  virtual ~DataPath() = default;
  DataPath(const DataPath&) = delete;
  DataPath& operator=(const DataPath&) = delete;

  virtual PathKind kind() const = 0;
  // Runs of blocks shorter than this share a message; 0: none do.
  virtual std::size_t pack_below(Lane lane) const = 0;
  // Called before pieces are taken from a send that has some; false: not yet.
  virtual bool is_open(const std::shared_ptr<Send>& send) = 0;
  virtual void post(const std::shared_ptr<Send>& send, const Piece& piece) = 0;
  // All pieces of the send are over: makes sure that the receiver has them, then
  // session.flush_done(). REQUIRES: session.needs_flush().
  virtual void flush(const std::shared_ptr<Send>& send) = 0;
  // The send's session is over.
  virtual void release(const std::shared_ptr<Send>& /*send*/) {}
  // Around the posting of each turn; true: there was something to do.
  virtual bool begin_turn() { return false; }
  virtual void end_turn() {}
  // An operation of this path is over.
  virtual void on_over(Op& op, ucs_status_t status) = 0;

 protected:
  // Fails the send when `status` is an error.
  void check(Send& send, ucs_status_t status);
  // Flushes the link and ends the session's flush with it.
  void flush_link(const std::shared_ptr<Send>& send);

  PathContext& context_;
};

}  // namespace baton::transfer
