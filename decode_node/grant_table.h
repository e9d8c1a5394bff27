// All open grants of a decode node: gives them, checks Commits against them, ends them, and keeps
// the blocks of ended ones in quarantine until the transport proves that nothing can land.
//
// Owner: DecodeNode. Thread: control strand; the transport's callbacks post themselves there.
// Failure: NoBlocks or Busy when the pool is short, InvalidArgument when a request can never fit;
// GrantRevoked, ProtocolError for a Commit that does not match, counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/exec/executor.h"
#include "common/wire/control.pb.h"
#include "decode_node/grant.h"
#include "engine/kv/kv_memory.h"
#include "transfer/transport.h"

namespace baton::decode_node {

struct GrantOptions {
  NodeName node;
  Incarnation incarnation{};
  std::string control_address;
  std::uint32_t vocab_size = 0;
  std::chrono::milliseconds ttl{30'000};           // without a sign of the writer, until its Commit
  std::chrono::milliseconds landing_ttl{30'000};   // Commit came; until all its bytes are here
  std::chrono::milliseconds landing_limit{1'000};  // Commit came, then the writer went away
  transfer::DigestMode digest = transfer::DigestMode::Off;  // the least that a Commit must carry
};

struct GrantHandlers {
  // Every byte is here and no receive is left: the grant's blocks hold the request's context.
  std::function<void(std::unique_ptr<Grant>)> on_verified;
  // Its gateway cancelled it, in the state it had until now.
  std::function<void(GrantState)> on_cancelled;
  // The grant ended though its gateway and its writer did not ask for it.
  std::function<void(const Grant&, const Error&)> on_failed;
  // The writer should stop; it may be gone.
  std::function<void(WriterId, const wire::Abort&)> send_abort;
  // Blocks have come free.
  std::function<void()> on_freed;
};

struct GrantStats {
  std::uint64_t granted = 0;
  std::uint64_t verified = 0;
  std::uint64_t revoked = 0;
  std::uint64_t expired = 0;
  std::uint64_t refused_commits = 0;
  std::uint64_t quiesced = 0;  // answers of writers to our Abort
};

class GrantTable {
 public:
  GrantTable(Executor& executor,
             transfer::Transport& transport,
             engine::KvMemory& kv,
             RandomSource random,
             GrantOptions options,
             GrantHandlers handlers);
  GrantTable(const GrantTable&) = delete;
  GrantTable& operator=(const GrantTable&) = delete;
  ~GrantTable() = default;

  // Blocks for a request: what the prefix index holds, pinned, and new ones for the rest.
  struct Blocks {
    engine::PrefixRef prefix;
    std::vector<engine::BlockLease> own;
  };
  // How much of an answer gets its blocks at once, and what must be left for others.
  struct Terms {
    std::uint32_t output_tokens = 0;  // beyond the context; 0: all the request may have
    std::uint32_t headroom = 0;       // blocks that stay obtainable: sequences grow into them
  };
  // `max_prefix`: leading blocks that may come from the index.
  Result<Blocks> take_blocks(const GenerateRequest& request,
                             const engine::RequestSize& size,
                             std::uint32_t max_prefix,
                             const Terms& terms);

  // A lease's name that nobody can guess; it means nothing until a grant has it.
  LeaseId draw_lease() const { return {random_(), random_()}; }
  Result<KvGrant> grant(node::ClientId client,
                        GenerateRequest request,
                        const engine::RequestSize& size,
                        const Terms& terms);
  Status commit(WriterId writer, const wire::Commit& commit);
  // A prefill node works on the lease, or has been handed it: binds it to that connection and
  // renews it. False: there is no such lease any more.
  bool renew(WriterId writer, LeaseId lease, Epoch epoch);
  // The writer gives the lease up. `tell_gateway`: it could not say so to the gateway itself.
  void abort(LeaseId lease, Epoch epoch, const std::string& reason, bool tell_gateway);
  // The writer's answer to an Abort, or a Commit that came too late.
  void quiesced(WriterId writer, LeaseId lease, Epoch epoch);
  // True when a grant of that request was open.
  bool cancel(node::ClientId client, RequestId request, Attempt attempt);
  void client_lost(node::ClientId client);
  void writer_lost(WriterId writer);
  void end_all(const Error& why);

  std::uint32_t num_open() const;
  // Open ones whose blocks do not suffice for the whole answer.
  std::uint32_t num_growing() const;
  std::uint32_t num_quarantined() const;
  const GrantStats& stats() const { return stats_; }

 private:
  Grant* find(LeaseId lease, Epoch epoch);
  Status check_commit(const Grant& grant, WriterId writer, const wire::Commit& commit) const;
  Status refuse(ErrorCode code, std::string why);
  // False: the event changes nothing now.
  static bool apply(Grant& grant, GrantEvent event);
  void arm(Grant& grant, std::chrono::milliseconds ttl);
  void landed(LeaseId lease, Epoch epoch, Result<transfer::LeaseReceiver::Done> done);
  void fence(Grant& grant);
  void fenced(LeaseId lease, Epoch epoch);
  // Ends a grant; tells the writer when it is known, the gateway when `failed`.
  void revoke(Grant& grant, const Error& why, bool tell_writer, bool tell_gateway);
  template <class Match>
  void revoke_if(Match match, const Error& why, bool tell_writer, bool tell_gateway);
  // Runs `method` on the strand unless this table is gone by then.
  template <class Function>
  auto on_strand(Function function);

  Executor& executor_;
  transfer::Transport& transport_;
  engine::KvMemory& kv_;
  const RandomSource random_;
  const GrantOptions options_;
  const GrantHandlers handlers_;
  std::unordered_map<LeaseId, std::unique_ptr<Grant>> grants_;
  std::uint32_t next_epoch_ = 1;
  GrantStats stats_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::decode_node
