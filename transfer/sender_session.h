// The sending side of one grant as a plain state machine: pieces wait, go out while the window
// allows it, complete; then the endpoint is flushed, or the session is aborted or fails.
//
//   Open ─finish▶ Finishing ─all complete▶ Flushing ─flush done▶ Flushed
//   Open | Finishing | Flushing ─abort▶ Aborting ─nothing outstanding▶ Quiesced
//   Open | Finishing | Flushing ─error▶ Failing ─nothing outstanding▶ Failed
//   Failing ─abort▶ Aborting; Flushed | Failed ─abort▶ Quiesced
//
// Owner: a transport. Thread: its owner's. Failure: an error keeps the first cause; the source
// blocks are free only in Flushed, Quiesced and Failed, when nothing posted can still read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_grant.h"
#include "common/types/kv_layout.h"
#include "transfer/digest.h"
#include "transfer/plan.h"
#include "transfer/transport.h"

namespace baton::transfer {

enum class SenderState : std::uint8_t {
  Open,
  Finishing,
  Flushing,
  Flushed,
  Aborting,
  Quiesced,
  Failing,
  Failed
};
constexpr std::size_t kSenderStates = 8;
std::string_view to_string(SenderState state);

enum class SenderEvent : std::uint8_t { Finish, Drained, FlushDone, Abort, Fail };
constexpr std::size_t kSenderEvents = 5;
// The one table of transitions; nullopt: the event changes nothing in this state. Drained is fed
// whenever no operation is outstanding and no piece waits.
std::optional<SenderState> next_state(SenderState state, SenderEvent event);

class SenderSession {
 public:
  SenderSession(const KvGrant& grant, std::uint32_t layers, PlanLimits limits, std::size_t window);

  LeaseId lease() const { return lease_; }
  Epoch epoch() const { return epoch_; }
  SenderState state() const { return state_; }

  // Digests the blocks that are added from now on, where they lie in `source`: of what the user
  // gave, not of what the plan made of it, and before the window lets it go, so that a block that
  // is changed while it waits is found. REQUIRES: nothing was added yet.
  void use_digest(DigestMode mode, const KvArenaView& source);
  // From now on runs shorter than this share a message.
  void set_pack_below(std::size_t bytes) { limits_.pack_below = bytes; }
  // Plans one layer's blocks; they go to the grant's blocks first, first + 1, …  Outside the grant
  // the session fails.
  void add_layer(std::uint32_t layer, std::uint32_t first, std::span<const BlockId> blocks);
  // The same for blocks that are gathered when they are sent: the pieces' sources are the places in
  // the grant, not blocks of the arena.
  void add_converted(std::uint32_t layer, std::uint32_t first, std::uint32_t count);
  // Such blocks have been gathered: these are their bytes, for the digest.
  void gathered(std::uint32_t layer, std::uint32_t first, std::span<const std::byte> blocks);
  // The next piece that the window admits; it counts as outstanding. A piece larger than the
  // window goes alone.
  std::optional<Piece> next();
  // True when next() would give a piece.
  bool is_ready() const;
  void completed(std::size_t bytes);
  void finish();
  // The flush that state Flushing asked for is posted, and later over.
  void flush_posted();
  void flush_done();
  void abort();
  void fail(Error error);

  bool needs_flush() const { return state_ == SenderState::Flushing && !flush_outstanding_; }
  // No operation can still read the source blocks.
  bool is_over() const;
  // Somebody else's turn: pieces wait or are outstanding, or the flush is.
  bool is_waiting() const {
    return !waiting_.empty() || outstanding_ > 0 || state_ == SenderState::Flushing;
  }
  std::uint64_t bytes_sent() const { return bytes_sent_; }  // completed
  Sent sent() const { return {bytes_sent_, digest_.mode(), digest_.value()}; }
  std::size_t outstanding_bytes() const { return outstanding_bytes_; }
  std::size_t outstanding() const { return outstanding_; }
  const std::optional<Error>& error() const { return error_; }

 private:
  // False: the session takes none.
  bool add(std::uint32_t layer, std::uint32_t first, std::span<const BlockId> sources);
  void apply(SenderEvent event);
  void settle();

  const LeaseId lease_;
  const Epoch epoch_;
  const std::uint32_t layers_;
  PlanLimits limits_;
  const std::size_t window_;
  std::vector<BlockId> targets_;  // the grant's blocks in order
  KvArenaView source_;            // set when there is a digest
  BlockDigest digest_;
  std::deque<Piece> waiting_;
  SenderState state_ = SenderState::Open;
  std::size_t outstanding_ = 0;
  std::size_t outstanding_bytes_ = 0;
  bool flush_outstanding_ = false;
  std::uint64_t bytes_sent_ = 0;
  std::optional<Error> error_;
};

}  // namespace baton::transfer
