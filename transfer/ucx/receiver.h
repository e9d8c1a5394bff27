// Open leases, and inlets by which messages for them arrive. A message's header is checked against
// its lease before any byte moves: then its bytes are received straight into the granted blocks, or
// it is dropped and counted.
//
// Each writer process has an inlet, a UCX worker of its own (links.h says why). A closing inlet
// takes no new message; the receives under way get a moment to end by themselves, since UCX cannot
// drop them, and are abandoned with their worker after it. Then nothing of that writer can land. An
// inlet that was never heard of stays open as long: its writer may be about to connect, and
// UCX 1.13 does not bear a refusal well.
//
// A writer that puts says so and is believed (claims.h); an inlet that has such writers is given
// the same moment to hear their last words, and one whose writers need its queue pairs is never
// abandoned with them.
//
// Owner: UcxTransport. Thread: `open`, `close` and counters from any thread, the rest on the
// reactor. Failure: foreign input is dropped; a receive that ends without its bytes frees its
// blocks for another try.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/types/kv_layout.h"
#include "transfer/entries.h"
#include "transfer/message.h"
#include "transfer/put_offer.h"
#include "transfer/ucx/claims.h"
#include "transfer/ucx/reactor.h"
#include "transfer/ucx/worker.h"

namespace baton::transfer {

class UcxReceiver {
 public:
  struct Counters {
    std::atomic<std::uint64_t> bytes = 0;
    std::atomic<std::uint64_t> messages = 0;
    std::atomic<std::uint64_t> failed = 0;
    std::atomic<std::uint64_t> mismatches = 0;
    std::array<std::atomic<std::uint64_t>, kDropReasons> dropped{};
  };

  // A way in for one writer.
  struct InletState {
    UcxReceiver* owner = nullptr;
    std::unique_ptr<UcxWorker> worker;
    std::size_t receives = 0;  // under way
    bool has_heard = false;    // a message has come: its writer is connected
    bool is_closing = false;
    std::chrono::steady_clock::time_point close_limit;
  };

  // `memory` is the arena's; all outlive every receive. `offer` is what writers may do.
  UcxReceiver(const KvArenaView& arena, const UcxMemory& memory, Reactor& reactor, PutOffer offer);
  ~UcxReceiver();
  UcxReceiver(const UcxReceiver&) = delete;
  UcxReceiver& operator=(const UcxReceiver&) = delete;

  // Any thread; it takes messages once it was added.
  Result<std::shared_ptr<InletState>> make_inlet(UcxContext& context);
  void add(const std::shared_ptr<InletState>& inlet);
  void remove(const std::shared_ptr<InletState>& inlet);

  std::shared_ptr<LeaseEntry> open(LeaseId lease,
                                   Epoch epoch,
                                   std::vector<BlockRun> runs,
                                   DigestMode digest);
  // Messages for it count as UnknownLease from now on.
  void close(LeaseId lease);
  // Its writer has said that it writes no more.
  void quiesced(LeaseId lease) { claims_.quiesced(lease); }
  // Revokes every lease and closes every inlet; later ones are refused.
  void stop();
  unsigned progress();
  bool arm();
  // Ends closing inlets whose receives are over, or out of time.
  void check();
  bool is_over() const { return is_stopped_ && inlets_.empty(); }

  std::size_t open_leases() const;
  bool is_receiving() const { return !active_.empty(); }
  const Counters& counters() const { return counters_; }
  void count_mismatch() { counters_.mismatches.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Op;
  static ucs_status_t on_message(void* arg,
                                 const void* header,
                                 std::size_t header_length,
                                 void* data,
                                 std::size_t length,
                                 const ucp_am_recv_param_t* param);
  static ucs_status_t on_put_note(void* arg,
                                  const void* header,
                                  std::size_t header_length,
                                  void* data,
                                  std::size_t length,
                                  const ucp_am_recv_param_t* param);
  static void on_received(void* request, ucs_status_t status, std::size_t length, void* user_data);
  ucs_status_t handle(InletState& inlet,
                      std::span<const std::byte> header_bytes,
                      void* data,
                      std::size_t length,
                      bool is_rendezvous);
  void handle_put(InletState& inlet, const PutMessage& message, ucp_ep_h reply);
  DropReason claim(InletState& inlet, const PutMessage& asked, ucp_ep_h reply);
  bool is_quiet(const InletState& inlet) const;
  bool may_abandon(const InletState& inlet) const;
  std::shared_ptr<LeaseEntry> find(LeaseId lease) const;
  void drop(DropReason reason);
  void copy(const MessageHeader& header, const std::byte* data);
  void receive(InletState& inlet,
               std::shared_ptr<LeaseEntry> entry,
               const MessageHeader& header,
               void* descriptor,
               std::size_t length);
  void finish(Op& op, ucs_status_t status, std::size_t length);
  void end(InletState& inlet);

  const KvArenaView arena_;
  const UcxMemory& memory_;
  Reactor& reactor_;
  const PutOffer offer_;
  UcxClaims claims_;
  std::vector<std::shared_ptr<InletState>> inlets_;  // open and closing
  std::size_t num_closing_ = 0;
  bool is_stopped_ = false;
  std::vector<std::unique_ptr<Op>> active_;  // receives under way
  std::vector<std::unique_ptr<Op>> spare_;
  Counters counters_;
  mutable std::mutex mutex_;  // guards leases_, not what it points to
  std::unordered_map<LeaseId, std::shared_ptr<LeaseEntry>> leases_;
};

}  // namespace baton::transfer
