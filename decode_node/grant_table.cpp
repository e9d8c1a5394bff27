// Blocks of a grant are handed on or freed in one place only, `fenced`: after the transport has
// said that no byte can land any more. A grant with nothing to send passes through it at once.
#include "decode_node/grant_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/wire/convert.h"

namespace baton::decode_node {

GrantTable::GrantTable(Executor& executor,
                       transfer::Transport& transport,
                       engine::KvMemory& kv,
                       RandomSource random,
                       GrantOptions options,
                       GrantHandlers handlers)
    : executor_(executor),
      transport_(transport),
      kv_(kv),
      random_(std::move(random)),
      options_(std::move(options)),
      handlers_(std::move(handlers)) {}

template <class Function>
auto GrantTable::on_strand(Function function) {
  return [&executor = executor_,
          alive = std::weak_ptr<bool>(alive_),
          function = std::move(function)](auto... args) {
    executor.post([alive, function, ... args = std::move(args)]() mutable {
      if (!alive.expired()) {
        function(std::move(args)...);
      }
    });
  };
}

Result<GrantTable::Blocks> GrantTable::take_blocks(const GenerateRequest& request,
                                                   const engine::RequestSize& size,
                                                   std::uint32_t max_prefix,
                                                   const Terms& terms) {
  const KvLayout& layout = kv_.layout();
  const std::uint32_t most = std::max(size.context, size.max_stored);
  const std::uint32_t total = layout.blocks_for(most);
  if (total > kv_.pool().total()) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("the request needs {} KV blocks ({} prompt tokens and up to {} output "
                            "tokens) and node {} has {}: lower max_tokens or raise kv.arena_mb",
                            total,
                            request.prompt.size(),
                            size.max_output,
                            options_.node,
                            kv_.pool().total()));
  }
  const std::uint64_t expected = std::uint64_t{size.context} + terms.output_tokens;
  const std::uint32_t first = terms.output_tokens == 0 || expected >= most
                                  ? total
                                  : layout.blocks_for(static_cast<std::uint32_t>(expected));
  Blocks blocks;
  blocks.prefix = kv_.index().find(engine::context_of(request), max_prefix);
  const std::uint32_t wanted = first - blocks.prefix.num_blocks();
  if (kv_.num_obtainable() < wanted + terms.headroom) {
    return fail(ErrorCode::Busy,
                fmt::format("node {}: {} KV blocks are wanted, {} can be had, and {} of these stay "
                            "for requests in work; retry when one has ended",
                            options_.node,
                            wanted,
                            kv_.num_obtainable(),
                            terms.headroom));
  }
  BATON_ASSIGN(blocks.own, kv_.acquire(wanted));
  kv_.index().count_use(blocks.prefix, size.context);
  return blocks;
}

Result<KvGrant> GrantTable::grant(node::ClientId client,
                                  GenerateRequest request,
                                  const engine::RequestSize& size,
                                  const Terms& terms) {
  const KvLayout& layout = kv_.layout();
  BATON_ASSIGN(Blocks blocks,
               take_blocks(request, size, size.context / layout.block_tokens, terms));
  auto grant = std::make_unique<Grant>();
  grant->lease = draw_lease();
  grant->epoch = Epoch{next_epoch_++};
  grant->client = client;
  grant->deadline = executor_.now() + request.deadline;
  grant->request = std::move(request);
  grant->size = size;
  grant->prefix = std::move(blocks.prefix);
  grant->blocks = std::move(blocks.own);
  for (engine::BlockLease& block : grant->blocks) {
    block.mark(engine::BlockUse::Granted);
  }
  const std::uint32_t held = grant->prefix.num_blocks();
  const std::uint32_t wanted = layout.blocks_for(size.context) - held;
  grant->expected_bytes = std::uint64_t{wanted} * layout.block_bytes_all_layers();

  KvGrant promise;
  promise.node = options_.node;
  promise.incarnation = options_.incarnation;
  promise.lease = grant->lease;
  promise.epoch = grant->epoch;
  promise.layout_hash = layout.hash();
  promise.layout = layout;
  promise.control_address = options_.control_address;
  promise.prefix_blocks = held;
  promise.ttl = options_.ttl;
  promise.runs = engine::to_runs(std::span<const engine::BlockLease>(grant->blocks).first(wanted));
  if (wanted > 0) {
    grant->receiver =
        transport_.open_lease(grant->lease, grant->epoch, promise.runs, options_.digest);
  }
  arm(*grant, options_.ttl);
  ++stats_.granted;
  grants_.emplace(grant->lease, std::move(grant));
  return promise;
}

void GrantTable::arm(Grant& grant, std::chrono::milliseconds ttl) {
  const Duration left = std::max(Duration::zero(), grant.deadline - executor_.now());
  const bool is_deadline = left <= ttl;
  grant.expiry = executor_.call_after(
      std::min<Duration>(left, ttl), [this, is_deadline, lease = grant.lease, epoch = grant.epoch] {
        Grant* grant = find(lease, epoch);
        if (grant != nullptr && grant->state != GrantState::Fencing) {
          ++stats_.expired;
          // A writer that works on it names it in every heartbeat.
          const bool is_silent = !is_deadline && grant->state == GrantState::Granted;
          revoke(*grant,
                 {is_silent ? ErrorCode::PeerStalled : ErrorCode::Timeout,
                  is_deadline ? "the request's deadline has passed"
                  : is_silent ? "the prefill node gave no sign that it works on the request"
                              : "the lease expired before the prompt's blocks arrived"},
                 true,
                 true);
        }
      });
}

Grant* GrantTable::find(LeaseId lease, Epoch epoch) {
  const auto found = grants_.find(lease);
  if (found == grants_.end() || found->second->epoch != epoch) {
    return nullptr;
  }
  return found->second.get();
}

bool GrantTable::apply(Grant& grant, GrantEvent event) {
  const auto next = next_state(grant.state, event);
  grant.state = next.value_or(grant.state);
  return next.has_value();
}

Status GrantTable::refuse(ErrorCode code, std::string why) {
  ++stats_.refused_commits;
  return fail(code, std::move(why));
}

Status GrantTable::check_commit(const Grant& grant,
                                WriterId writer,
                                const wire::Commit& commit) const {
  if (grant.writer != WriterId{} && grant.writer != writer) {
    return fail(ErrorCode::GrantRevoked, "the lease belongs to another prefill connection");
  }
  if (commit.choice() != grant.request.choice ||
      commit.first_index() != grant.request.output.size()) {
    return fail(ErrorCode::ProtocolError, "Commit: choice or first_index is not the request's");
  }
  if (commit.first_token() < 0 ||
      static_cast<std::uint32_t>(commit.first_token()) >= options_.vocab_size) {
    return fail(ErrorCode::ProtocolError, "Commit: first_token is not in the vocabulary");
  }
  if (commit.token_count() != grant.size.context) {
    return fail(ErrorCode::ProtocolError,
                fmt::format("Commit: token_count is {} and the request has {}",
                            commit.token_count(),
                            grant.size.context));
  }
  if (commit.bytes() != grant.expected_bytes) {
    return fail(
        ErrorCode::ProtocolError,
        fmt::format("Commit: {} bytes and the grant has {}", commit.bytes(), grant.expected_bytes));
  }
  if (!transfer::digest_mode_of(commit.digest_mode())) {
    return fail(ErrorCode::ProtocolError,
                fmt::format("Commit: {} is no digest_mode", commit.digest_mode()));
  }
  return {};
}

Status GrantTable::commit(WriterId writer, const wire::Commit& commit) {
  Grant* grant = find(lease_of(commit), Epoch{commit.epoch()});
  if (grant != nullptr && grant->state == GrantState::Quarantined) {
    quiesced(writer, grant->lease, grant->epoch);  // a writer that commits writes no more
  }
  if (grant == nullptr || grant->state == GrantState::Quarantined) {
    return refuse(ErrorCode::GrantRevoked, "the lease is unknown or has ended");
  }
  if (!next_state(grant->state, GrantEvent::Commit)) {
    return refuse(ErrorCode::GrantRevoked, "the lease is committed already");
  }
  if (const Status status = check_commit(*grant, writer, commit); !status) {
    if (status.error().code == ErrorCode::ProtocolError) {
      // A writer that disagrees about what it wrote has no claim on the blocks any more.
      revoke(*grant, status.error(), false, false);
    }
    return refuse(status.error().code, status.error().message);
  }
  grant->writer = writer;
  grant->committed = {.first_token = commit.first_token(), .transfer_us = commit.transfer_us()};
  apply(*grant, GrantEvent::Commit);
  arm(*grant, options_.landing_ttl);
  if (grant->receiver == nullptr) {
    grant->landed.transport = "none";
    fence(*grant);
    return {};
  }
  grant->receiver->expect({.bytes = commit.bytes(),
                           .digest_mode = *transfer::digest_mode_of(commit.digest_mode()),
                           .digest = commit.digest()},
                          on_strand([this, lease = grant->lease, epoch = grant->epoch](
                                        Result<transfer::LeaseReceiver::Done> done) {
                            landed(lease, epoch, std::move(done));
                          }));
  return {};
}

void GrantTable::landed(LeaseId lease, Epoch epoch, Result<transfer::LeaseReceiver::Done> done) {
  Grant* grant = find(lease, epoch);
  if (grant == nullptr || !next_state(grant->state, GrantEvent::Landed)) {
    return;
  }
  if (!done) {
    revoke(*grant, done.error(), true, true);
    return;
  }
  grant->landed = std::move(*done);
  fence(*grant);
}

void GrantTable::fence(Grant& grant) {
  apply(grant, GrantEvent::Landed);
  auto done = on_strand([this, lease = grant.lease, epoch = grant.epoch] { fenced(lease, epoch); });
  if (grant.receiver != nullptr) {
    grant.receiver->revoke(std::move(done));
  } else {
    done();
  }
}

void GrantTable::fenced(LeaseId lease, Epoch epoch) {
  const auto found = grants_.find(lease);
  if (found == grants_.end() || found->second->epoch != epoch ||
      !next_state(found->second->state, GrantEvent::Fenced)) {
    return;
  }
  std::unique_ptr<Grant> grant = std::move(found->second);
  grants_.erase(found);
  grant->expiry.cancel();
  grant->receiver.reset();
  const bool is_whole = grant->state == GrantState::Fencing;
  apply(*grant, GrantEvent::Fenced);
  if (is_whole) {
    ++stats_.verified;
    handlers_.on_verified(std::move(grant));
    return;
  }
  grant.reset();  // the blocks go home
  handlers_.on_freed();
}

void GrantTable::revoke(Grant& grant, const Error& why, bool tell_writer, bool tell_gateway) {
  const bool fence_is_coming = grant.state == GrantState::Fencing;
  if (!apply(grant, GrantEvent::Revoke)) {
    return;
  }
  ++stats_.revoked;
  grant.expiry.cancel();
  grant.prefix.reset();
  for (engine::BlockLease& block : grant.blocks) {
    block.mark(engine::BlockUse::Quarantined);
  }
  if (tell_writer && grant.writer != WriterId{}) {
    wire::Abort abort;
    set_lease(abort, grant.lease, grant.epoch);
    abort.set_reason(why.message);
    handlers_.send_abort(grant.writer, abort);
  }
  if (tell_gateway) {
    handlers_.on_failed(grant, why);
  }
  if (!fence_is_coming) {
    auto done =
        on_strand([this, lease = grant.lease, epoch = grant.epoch] { fenced(lease, epoch); });
    if (grant.receiver != nullptr) {
      grant.receiver->revoke(std::move(done));
    } else {
      done();
    }
  }
}

template <class Match>
void GrantTable::revoke_if(Match match, const Error& why, bool tell_writer, bool tell_gateway) {
  // Revoking never erases: that happens in `fenced`, later.
  for (const auto& [lease, grant] : grants_) {
    if (match(*grant)) {
      revoke(*grant, why, tell_writer, tell_gateway);
    }
  }
}

bool GrantTable::renew(WriterId writer, LeaseId lease, Epoch epoch) {
  Grant* grant = find(lease, epoch);
  if (grant == nullptr || grant->state == GrantState::Quarantined) {
    return false;
  }
  if (grant->writer == WriterId{}) {
    grant->writer = writer;
  }
  if (grant->writer != writer) {
    return false;
  }
  if (grant->state == GrantState::Granted) {
    arm(*grant, options_.ttl);
  }
  return true;
}

void GrantTable::abort(LeaseId lease, Epoch epoch, const std::string& reason, bool tell_gateway) {
  if (Grant* grant = find(lease, epoch)) {
    const ErrorCode code = tell_gateway ? ErrorCode::PeerDead : ErrorCode::Cancelled;
    revoke(*grant, {code, reason}, false, tell_gateway);
  }
}

void GrantTable::quiesced(WriterId writer, LeaseId lease, Epoch epoch) {
  Grant* grant = find(lease, epoch);
  if (grant == nullptr) {
    return;
  }
  ++stats_.quiesced;
  // Where the writer puts, this is what the fence waits for; elsewhere the own side's proof is
  // stronger.
  if (grant->state == GrantState::Quarantined && grant->writer == writer &&
      grant->receiver != nullptr) {
    grant->receiver->writer_quiesced();
  }
}

bool GrantTable::cancel(node::ClientId client, RequestId request, Attempt attempt) {
  bool found = false;
  revoke_if(
      [&](const Grant& grant) {
        const bool match = grant.client == client && grant.request.id == request &&
                           grant.request.attempt == attempt;
        if (match && grant.state != GrantState::Quarantined) {
          handlers_.on_cancelled(grant.state);
        }
        found = found || match;
        return match;
      },
      {ErrorCode::Cancelled, "the gateway cancelled the request"},
      true,
      false);
  return found;
}

void GrantTable::client_lost(node::ClientId client) {
  revoke_if([client](const Grant& grant) { return grant.client == client; },
            {ErrorCode::Cancelled, "the gateway is gone"},
            true,
            false);
}

void GrantTable::writer_lost(WriterId writer) {
  revoke_if(
      [writer](const Grant& grant) {
        return grant.writer == writer && grant.state == GrantState::Granted;
      },
      {ErrorCode::PeerDead, "the prefill node went away before the prompt's blocks arrived"},
      false,
      true);
  // A committed grant needs its writer no more: its bytes are here or in this host's buffers. Those
  // that are neither by then were lost with it.
  for (const auto& [lease, grant] : grants_) {
    if (grant->writer == writer && grant->state == GrantState::Landing) {
      arm(*grant, options_.landing_limit);
    }
  }
}

void GrantTable::end_all(const Error& why) {
  revoke_if([](const Grant&) { return true; }, why, true, true);
}

std::uint32_t GrantTable::num_open() const {
  return static_cast<std::uint32_t>(grants_.size()) - num_quarantined();
}

std::uint32_t GrantTable::num_growing() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(grants_, [this](const auto& item) {
    const Grant& grant = *item.second;
    const std::size_t held = grant.prefix.num_blocks() + grant.blocks.size();
    return grant.state != GrantState::Quarantined &&
           held < kv_.layout().blocks_for(std::max(grant.size.context, grant.size.max_stored));
  }));
}

std::uint32_t GrantTable::num_quarantined() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      grants_, [](const auto& item) { return item.second->state == GrantState::Quarantined; }));
}

}  // namespace baton::decode_node
