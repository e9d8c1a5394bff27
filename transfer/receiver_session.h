// The receiving side of one lease as a plain state machine: which messages may be written, which
// bytes have landed, whether they are those that were sent, when the lease is complete, when its
// blocks may be used again.
//
//   Open ──all landed, digest right──▶ Complete              (nothing more is accepted)
//   Open ──commit impossible, or digest wrong──▶ Failed      (nothing more is accepted)
//   any  ──revoke──▶ Revoked                                 (nothing more is accepted)
// A lease in any state is fenced once it accepts nothing, has no receive under way and no claim.
// Blocks are digested as they land, while they are warm; at the commit when the writer's digest
// looks at more than the own, or when they were put.
//
// A claim: one writer will put bytes that this side does not see arrive. It is given once, before
// any message, and ends by the writer's word (put_done, unclaimed) or by a proof that it writes no
// more (unclaimed); never by time.
//
// Owner: a LeaseEntry. Thread: its owner's. Failure: foreign input gives a DropReason, never a
// write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_grant.h"
#include "common/types/kv_layout.h"
#include "transfer/digest.h"
#include "transfer/message.h"
#include "transfer/transport.h"

namespace baton::transfer {

enum class DropReason : std::uint8_t {
  None = 0,
  Malformed,     // the header does not decode
  UnknownLease,  // never granted, or over
  WrongEpoch,
  BadLayer,
  OutOfRange,   // a block that the lease does not hold
  WrongLength,  // bytes do not fit the runs
  Duplicate,    // a block that has landed or is landing
  Ended,        // lease complete or revoked
  Claimed,      // the lease belongs to a writer that puts, or had messages before the claim
  Unprovable,   // a claim whose end nothing could prove, or by a path that was not offered
};
constexpr std::size_t kDropReasons = 11;
std::string_view to_string(DropReason reason);

enum class ReceiverState : std::uint8_t { Open, Complete, Failed, Revoked };
constexpr std::size_t kReceiverStates = 4;
std::string_view to_string(ReceiverState state);

enum class ReceiverEvent : std::uint8_t { Verified, Broken, Revoke };
constexpr std::size_t kReceiverEvents = 3;
// The one table of transitions; nullopt: the event changes nothing in this state.
std::optional<ReceiverState> next_state(ReceiverState state, ReceiverEvent event);

class ReceiverSession {
 public:
  // `runs` are blocks of the own arena, in the order of the grant. REQUIRES: inside the arena, none
  // twice; the arena's memory outlives the lease when there is a digest.
  ReceiverSession(LeaseId lease,
                  Epoch epoch,
                  const KvArenaView& arena,
                  std::vector<BlockRun> runs,
                  DigestMode digest = DigestMode::Off);

  LeaseId lease() const { return lease_; }
  Epoch epoch() const { return epoch_; }
  ReceiverState state() const { return state_; }

  // Checks a message of `length` bytes. None: its blocks count as landing, and the caller must
  // answer with `landed` or `failed` for the same header.
  DropReason admit(const MessageHeader& header, std::uint64_t length);
  void landed(const MessageHeader& header);
  // The receive ended without all its bytes: its blocks may come again.
  void failed(const MessageHeader& header);

  // A writer will put. None: it holds the claim.
  DropReason claim(Epoch epoch);
  // The holder put `bytes` bytes, all visible, and will put no more.
  void put_done(std::uint64_t bytes, Lane lane);
  // The holder will put no more. Nothing to do when there is no claim.
  void unclaimed();
  bool is_claimed() const { return is_claimed_; }

  // The writer says what it sent. May turn the lease Complete or Failed.
  void expect(const Sent& sent);
  void revoke();

  // True when no accepted byte can land any more and none will be accepted.
  bool is_fenced() const {
    return state_ != ReceiverState::Open && receiving_ == 0 && !is_claimed_;
  }
  std::uint64_t bytes_landed() const { return bytes_landed_; }
  std::uint32_t receiving() const { return receiving_; }
  Lane lane() const { return lane_; }
  // Which blocks the digest looks at; the writer's once it has committed.
  DigestMode digest_mode() const { return digest_.mode(); }
  // Why the lease is Failed.
  const std::optional<Error>& error() const { return error_; }

 private:
  enum class Mark : std::uint8_t { Empty = 0, Landing = 1, Landed = 2 };
  struct Span {
    std::uint32_t first;  // block id
    std::uint32_t count;
    std::uint32_t index;  // of the first block in the lease's map
  };
  std::uint64_t capacity() const { return std::uint64_t{layers_} * num_blocks_ * block_bytes_; }
  // Index of a run's first block in the map, when the lease holds the whole run.
  std::optional<std::uint32_t> index_of(BlockRun run) const;
  void mark(const MessageHeader& header, Mark from, Mark to);
  void digest_blocks(std::uint32_t layer, std::uint32_t map_index, BlockRun run);
  void digest_again(DigestMode mode);
  void check_complete();
  void apply(ReceiverEvent event);
  void fail(ErrorCode code, std::string message);

  const LeaseId lease_;
  const Epoch epoch_;
  const KvArenaView arena_;
  const std::uint32_t layers_;
  const std::uint64_t block_bytes_;
  std::vector<Span> spans_;              // ordered by block id, neighbours joined
  std::uint32_t num_blocks_ = 0;         // of one layer
  std::vector<std::uint32_t> order_;     // [num_blocks] of the map: its index in the grant
  std::vector<Mark> marks_;              // [layers][num_blocks], made at the first message
  std::vector<std::uint32_t> admitted_;  // scratch: map index of each run of a message under check
  ReceiverState state_ = ReceiverState::Open;
  std::uint64_t bytes_landed_ = 0;
  std::uint32_t receiving_ = 0;  // messages admitted and not yet landed or failed
  std::optional<Sent> expected_;
  BlockDigest digest_;
  std::optional<Error> error_;
  Lane lane_ = Lane::Unknown;
  bool is_claimed_ = false;
  bool had_claim_ = false;
};

}  // namespace baton::transfer
