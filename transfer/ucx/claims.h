// Claims that writers hold on leases: each puts bytes into its lease that this side does not see
// (put_message.h). A claim ends by the writer's word, on the data connection (Done, Released) or on
// the control connection (Quiesced), or by a proof that the writer cannot write any more:
//   RdmaPut  the inlet's worker is destroyed, and with it the queue pair that the writes need
//   ShmPut   the writer's process has ended, as its pid descriptor says
// A claim that nothing could prove the end of is not given. Time ends none.
//
// Owner: UcxReceiver. Thread: the reactor. Failure: a claim is refused; foreign words are ignored.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>

#include "transfer/entries.h"
#include "transfer/process_watch.h"
#include "transfer/put_message.h"
#include "transfer/ucx/reactor.h"

namespace baton::transfer {

class UcxClaims {
 public:
  // The inlet that a claim came by, compared only.
  using InletId = const void*;

  explicit UcxClaims(Reactor& reactor) : reactor_(reactor) {}
  UcxClaims(const UcxClaims&) = delete;
  UcxClaims& operator=(const UcxClaims&) = delete;
  ~UcxClaims() = default;

  // Gives the lease to the writer that asks.
  DropReason give(const std::shared_ptr<LeaseEntry>& entry, InletId inlet, const PutMessage& asked);
  // Its Done or Released; nothing when there is no such claim. Adds what came by it to `landed`.
  void end(const PutMessage& word, std::atomic<std::uint64_t>& landed);
  // The writer has said on control that it writes no more.
  void quiesced(LeaseId lease);
  // The inlet's worker has been destroyed.
  void inlet_closed(InletId inlet);
  // There are claims that came by the inlet; `path`: and write so.
  bool has_any(InletId inlet) const;
  bool has_any(InletId inlet, PathKind path) const;
  std::size_t size() const { return claims_.size(); }

 private:
  struct Claim {
    std::shared_ptr<LeaseEntry> entry;
    InletId inlet = nullptr;
    PathKind path = PathKind::RdmaPut;
    ProcessIdentity writer;
  };
  struct Watched {
    UniqueFd fd;
    std::size_t claims = 0;
  };
  struct Less {
    bool operator()(const ProcessIdentity& a, const ProcessIdentity& b) const;
  };
  bool watch(const ProcessIdentity& writer);
  void unwatch(const ProcessIdentity& writer);
  void writer_ended(const ProcessIdentity& writer);
  template <class Match>
  void end_if(Match match);

  Reactor& reactor_;
  std::unordered_map<LeaseId, Claim> claims_;
  std::map<ProcessIdentity, Watched, Less> writers_;  // of ShmPut claims
};

}  // namespace baton::transfer
