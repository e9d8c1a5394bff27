// The data plane: moves KV blocks from a prefill node's arena into blocks that a decode node
// granted. One Transport a process. It owns the one thread (the reactor) that progresses UCX.
//
// Sequence of events:
//   decode:  open_inlet() for each prefill process, whose address the handshake carries
//            open_lease(runs) -> bytes land, each checked for lease, epoch, layer and bounds
//            -> expect(sent) when Commit came -> `complete` runs once every byte has landed and
//            the digest of the blocks is the writer's
//   prefill: connect(inlet's address) -> begin(grant) -> send_layer(...) for each layer as it is
//   computed
//            -> finish() -> `flushed` runs when the other side can see every byte -> Commit on
//            control
//   abort:   sender.abort() -> `quiesced` runs when nothing posted can still land;
//            receiver.revoke() -> later bytes are dropped; `fenced` runs when none can land any
//            more, which a writer that puts must say (writer_quiesced) or its end must prove.
//
// Thread: every public method may be called from any thread and never blocks; callbacks run on the
// reactor: post to your own strand and return at once. Failure: see each callback; a dead peer
// fails its sends with PeerDead; foreign messages are counted and dropped, never written. A peer
// that is let put is trusted with the whole arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/types/kv_grant.h"
#include "common/types/kv_layout.h"
#include "transfer/digest.h"
#include "transfer/staging.h"

namespace baton::transfer {

// Where an arena's bytes lie.
enum class MemoryKind : std::uint8_t { Host, Device };

struct TransportOptions {
  std::string transport =
      "auto";  // auto, tcp, shm, rdma: the lanes UCX may use (sets UCX_TLS unless the operator did)
  std::string path = "auto";  // auto: put over rc and dc, active messages elsewhere; am; put: also
                              // over shared memory
  std::string network = "";   // interface names for the data network (UCX_NET_DEVICES); empty: all
  std::map<std::string, std::string>
      ucx;  // further UCX_* settings; the operator's environment wins
  std::size_t window_bytes = std::size_t{8} << 20;  // un-flushed bytes a lease may have, <= 32 MiB
  MemoryKind memory = MemoryKind::Host;             // the arena's
};

// What has happened so far; plain counters, readable from any thread.
struct TransportStats {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;  // counted in the receive callback
  std::uint64_t messages_received = 0;
  std::uint64_t messages_dropped = 0;  // unknown lease, old epoch, out of bounds, malformed
  std::map<std::string, std::uint64_t> dropped_by_reason;  // non-zero counts
  std::uint64_t sends_failed = 0;
  std::uint64_t receives_failed = 0;
  std::uint64_t digest_mismatches = 0;  // leases whose blocks were not those that were sent
  std::uint64_t loop_count = 0;         // reactor loops: shows a stuck data thread
  std::uint64_t open_leases = 0;
  std::uint64_t open_sends = 0;
};

// What a writer says of a lease it has sent: goes with its Commit, from `finish` to `expect`.
struct Sent {
  std::uint64_t bytes = 0;
  DigestMode digest_mode = DigestMode::Off;
  std::uint64_t digest = 0;  // of the blocks that the mode looks at
};

// A way in for one writer process. Dropping it closes it: receives that came in through it end, and
// nothing of that writer can land any more.
class Inlet {
 public:
  virtual ~Inlet() = default;
  // What the writer connects to.
  virtual const std::vector<std::byte>& address() const = 0;
};

// The receiving side of one grant. Dropping it revokes the lease.
class LeaseReceiver {
 public:
  struct Done {
    std::uint64_t bytes = 0;                // landed, each byte of the lease counted once
    std::string transport;                  // lane the bytes came over: tcp, shm, …
    DigestMode verified = DigestMode::Off;  // which blocks were compared with the writer's digest
  };
  virtual ~LeaseReceiver() = default;
  // The writer has committed: runs `complete` once as many bytes have landed, possibly at once.
  // ChecksumMismatch: they are not those that were sent. A digest that looks at less than this side
  // wants is a ProtocolError.
  virtual void expect(const Sent& sent, std::function<void(Result<Done>)> complete) = 0;
  // No later byte is accepted; `fenced` runs when no byte can land any more and the blocks may be
  // re-used: posted receives are over, and a writer that puts has said that it is quiet or has been
  // proven to be. Time alone never fences.
  virtual void revoke(std::function<void()> fenced) = 0;
  // The writer has answered a revoked lease's Abort: nothing that it posted can land any more.
  virtual void writer_quiesced() {}
};

// How far a send is, to tell a slow one from one that stands still.
struct Progress {
  bool is_waiting = false;  // something is to be sent or flushed
  std::uint64_t moves = 0;  // grows whenever a byte of any send on the same connection is over
};

// The sending side of one grant.
class LeaseSender {
 public:
  virtual ~LeaseSender() = default;
  // Posts the bytes of prompt blocks [first, first + blocks.size()), counted from the grant's
  // prefix_blocks, of one layer; `blocks` are ids in this node's arena. The blocks' bytes must stay
  // unchanged until `flushed` or `quiesced`.
  virtual void send_layer(std::uint32_t layer,
                          std::uint32_t first,
                          std::vector<BlockId> blocks) = 0;
  // The same where the grant's layout is not the arena's: gives the grant's blocks [first, first +
  // count), which are filled from the context's blocks one message at a time.
  virtual void send_converted(std::uint32_t layer,
                              std::uint32_t first,
                              std::uint32_t count,
                              std::shared_ptr<const ContextBlocks> context) = 0;
  // Nothing more will be sent. Runs `flushed` once the receiver's side has every byte.
  virtual void finish(std::function<void(Result<Sent>)> flushed) = 0;
  // Stops posting; runs `quiesced` when no posted operation is left. May follow any call, even
  // twice.
  virtual void abort(std::function<void()> quiesced) = 0;
  virtual Progress progress() const { return {}; }
};

// A connection to another process's inlet.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual bool is_up() const = 0;
  // Lane that carries the bytes (tcp, shm, …), known once connected.
  virtual std::string transport_name() const = 0;
  // The other process has gone silent: what is open on this connection fails, what is posted is
  // given up in a bounded time, and `failed` does not run. Dropping the handle alone waits for
  // open sends, which a process that is stopped never ends.
  virtual void disconnect() = 0;
};

class Transport {
 public:
  // `arena` is registered once and outlives the transport.
  static Result<std::unique_ptr<Transport>> create(const TransportOptions& options,
                                                   KvArenaView arena);
  // Whether UCX finds its lanes on this machine; names on standard error what of `options.ucx` and
  // of the environment it does not know. Gives UCX's version.
  static Result<std::string> check(const TransportOptions& options);
  virtual ~Transport() = default;

  virtual std::string ucx_version() const = 0;

  // Receiver. One inlet a writer process: a peer that dies in mid-write can block what it wrote to.
  virtual Result<std::unique_ptr<Inlet>> open_inlet() = 0;
  // `runs` are blocks of the own arena that the lease may write, in the order of the grant.
  // `digest`: which of them this side wants compared; the writer may do more.
  virtual std::unique_ptr<LeaseReceiver> open_lease(LeaseId lease,
                                                    Epoch epoch,
                                                    std::vector<BlockRun> runs,
                                                    DigestMode digest = DigestMode::Off) = 0;

  // Sender. `failed` runs at most once, when the peer is lost.
  virtual Result<std::shared_ptr<Peer>> connect(std::span<const std::byte> inlet_address,
                                                std::function<void(Error)> failed) = 0;
  // A grant whose layout is not the arena's is sent by send_converted; Mismatch: it cannot be.
  // `digest`: the stricter of what both sides want.
  virtual Result<std::unique_ptr<LeaseSender>> begin(std::shared_ptr<Peer> peer,
                                                     const KvGrant& grant,
                                                     DigestMode digest = DigestMode::Off) = 0;

  virtual TransportStats stats() const = 0;
  // Makes the data thread turn once more, also when it sleeps: between two calls a live one moves
  // `loop_count`. A transport without a thread need not do anything.
  virtual void poke() {}
  // Stops the reactor after failing what is open. Idempotent; the destructor calls it.
  virtual void stop() = 0;
};

}  // namespace baton::transfer
