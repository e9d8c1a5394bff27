#include "prefill_node/pulls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/wire/convert.h"

namespace baton::prefill_node {

template <class Function>
auto Pulls::on_strand(Function function) {
  return [&executor = parts_.executor,
          alive = std::weak_ptr<bool>(alive_),
          function = std::move(function)](auto... args) {
    executor.post([alive, function, ... args = std::move(args)]() mutable {
      if (!alive.expired()) {
        function(std::move(args)...);
      }
    });
  };
}

std::uint32_t Pulls::count_worth(const KvGrant& grant,
                                 std::uint32_t held,
                                 std::uint32_t context,
                                 double tokens_per_second) const {
  const KvLayout& own = parts_.kv.layout();
  const std::uint32_t theirs =
      grant.layout.layers > 0 ? grant.layout.block_tokens : own.block_tokens;
  // The last token is always computed.
  const std::uint32_t tokens = std::min(grant.prefix_blocks * theirs, context - 1);
  const std::uint32_t blocks = tokens / own.block_tokens;
  if (!parts_.enabled || blocks <= held) {
    return 0;
  }
  const std::uint32_t wanted = blocks - held;
  const bool worth = cost_.is_worth(grant.node,
                                    wanted * own.block_bytes_all_layers(),
                                    wanted * own.block_tokens,
                                    tokens_per_second,
                                    parts_.executor.now());
  return worth ? wanted : 0;
}

PullId Pulls::start(const KvGrant& grant,
                    std::vector<TokenId> tokens,
                    std::uint32_t held,
                    std::vector<engine::BlockLease> blocks,
                    double tokens_per_second,
                    OnDone on_done) {
  const KvLayout& own = parts_.kv.layout();
  const std::uint32_t wanted = static_cast<std::uint32_t>(blocks.size());
  BATON_CHECK(wanted > 0 && tokens.size() >= std::size_t{held + wanted} * own.block_tokens,
              "a pull names the tokens of its blocks");
  const PullId id{next_id_++};
  Pull& pull = pulls_[id];
  pull.tokens = std::move(tokens);
  pull.tokens.resize(std::size_t{held + wanted} * own.block_tokens);
  pull.blocks = std::move(blocks);
  for (engine::BlockLease& block : pull.blocks) {
    block.mark(engine::BlockUse::Granted);
  }
  pull.grant = grant;  // the node, its life and its layout, for the link
  pull.grant.lease = {parts_.random(), parts_.random()};
  pull.grant.epoch = Epoch{next_epoch_++};
  pull.grant.prefix_blocks = held;
  pull.grant.runs = engine::to_runs(std::span<const engine::BlockLease>(pull.blocks));
  pull.started = parts_.executor.now();
  pull.on_done = std::move(on_done);
  pull.limit = parts_.executor.call_after(
      PullCost::limit(wanted * own.block_tokens, tokens_per_second), [this, id] {
        fail(id, {ErrorCode::Timeout, "the pull took longer than computing would have"});
      });
  pull.user =
      parts_.links.join(pull.grant,
                        LinkUser{.on_up = [this, id] { ask(id); },
                                 .on_lost =
                                     [this, id](const Error& why) {
                                       if (Pull* pull = find(id)) {
                                         pull->user.reset();
                                         fail(id, why);
                                       }
                                     },
                                 .on_abort = [this, id](const Error& why) { fail(id, why); },
                                 .on_quiesced = [this, id] { writer_quiesced(id); }},
                        LeaseOwner::ThisNode);
  return id;
}

void Pulls::ask(PullId id) {
  Pull* pull = find(id);
  Channel* channel = pull != nullptr && pull->user ? parts_.links.channel(*pull->user) : nullptr;
  if (channel == nullptr || pull->state != State::Asking) {
    return;
  }
  // The decode node digests its blocks as its Welcome told.
  pull->receiver = parts_.transport.open_lease(
      pull->grant.lease, pull->grant.epoch, pull->grant.runs, parts_.links.digest(*pull->user));
  KvGrant grant = pull->grant;
  grant.node = parts_.node;
  grant.incarnation = parts_.incarnation;
  grant.layout = parts_.kv.layout();
  grant.layout_hash = grant.layout.hash();
  wire::Frame frame;
  wire::Pull& message = *frame.mutable_pull();
  *message.mutable_grant() = to_wire(grant);
  message.mutable_tokens()->Add(pull->tokens.begin(), pull->tokens.end());
  message.set_blocks(static_cast<std::uint32_t>(pull->blocks.size()));
  channel->call(std::move(frame),
                std::chrono::seconds(10),  // the pull's own limit comes first
                [this, id, alive = std::weak_ptr<bool>(alive_)](const Result<wire::Frame>& answer) {
                  if (!alive.expired()) {
                    answered(id, answer);
                  }
                });
}

Status Pulls::check(const Pull& pull, const wire::Pulled& message) const {
  if (message.blocks() == 0 || message.blocks() > pull.blocks.size() ||
      message.bytes() != message.blocks() * parts_.kv.layout().block_bytes_all_layers()) {
    return baton::fail(ErrorCode::ProtocolError,
                       fmt::format("Pulled: {} blocks of {} bytes in all; asked for {}",
                                   message.blocks(),
                                   message.bytes(),
                                   pull.blocks.size()));
  }
  if (!transfer::digest_mode_of(message.digest_mode())) {
    return baton::fail(ErrorCode::ProtocolError,
                       fmt::format("Pulled: {} is no digest_mode", message.digest_mode()));
  }
  return {};
}

void Pulls::answered(PullId id, const Result<wire::Frame>& answer) {
  Pull* pull = find(id);
  if (pull == nullptr || pull->state != State::Asking) {
    return;
  }
  if (!answer) {
    fail(id, answer.error());
    return;
  }
  if (const Status status = check(*pull, answer->pulled()); !status) {
    fail(id, status.error());
    return;
  }
  pull->state = State::Landing;
  const wire::Pulled& pulled = answer->pulled();
  pull->count = pulled.blocks();
  pull->sent = {.bytes = pulled.bytes(),
                .digest_mode = *transfer::digest_mode_of(pulled.digest_mode()),
                .digest = pulled.digest()};
  pull->receiver->expect(pull->sent,
                         on_strand([this, id](const Result<transfer::LeaseReceiver::Done>& done) {
                           landed(id, done);
                         }));
}

void Pulls::landed(PullId id, const Result<transfer::LeaseReceiver::Done>& done) {
  Pull* pull = find(id);
  if (pull == nullptr || pull->state != State::Landing) {
    return;
  }
  if (!done) {
    fail(id, done.error());
    return;
  }
  pull->state = State::Fencing;
  pull->receiver->revoke(on_strand([this, id] { fenced(id); }));
}

void Pulls::fenced(PullId id) {
  const auto found = pulls_.find(id);
  if (found == pulls_.end()) {
    return;
  }
  Pull pull = std::move(found->second);
  pulls_.erase(found);
  pull.limit.cancel();
  if (pull.user) {
    parts_.links.leave(*pull.user);
  }
  if (pull.state != State::Fencing) {
    pull.blocks.clear();  // they go home
    parts_.on_freed();
    return;
  }
  const Duration took = parts_.executor.now() - pull.started;
  cost_.succeeded(pull.grant.node, pull.sent.bytes, took, parts_.executor.now());
  parts_.probe.pulled(pull.count * parts_.kv.layout().block_tokens, pull.sent.bytes);
  for (engine::BlockLease& block : pull.blocks) {
    block.mark(engine::BlockUse::InUse);
  }
  pull.on_done(Pulled{std::move(pull.blocks), pull.count});
}

void Pulls::fail(PullId id, const Error& why) {
  Pull* pull = find(id);
  if (pull == nullptr || pull->state == State::Quarantined) {
    return;
  }
  parts_.log.info("pull from {}: {}", pull->grant.node, why.message);
  parts_.probe.pull_failed();
  cost_.failed(pull->grant.node, parts_.executor.now());
  const OnDone on_done = std::move(pull->on_done);
  quarantine(id, *pull, why.message);
  // Later: this may run inside a callback of the link.
  parts_.executor.post([on_done, why, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired() && on_done) {
      on_done(std::unexpected(why));
    }
  });
}

void Pulls::cancel(PullId id) {
  Pull* pull = find(id);
  if (pull != nullptr && pull->state != State::Quarantined) {
    pull->on_done = nullptr;
    quarantine(id, *pull, "the request is over");
  }
}

void Pulls::quarantine(PullId id, Pull& pull, const std::string& reason) {
  const bool fence_is_coming = pull.state == State::Fencing;
  pull.state = State::Quarantined;
  pull.limit.cancel();
  for (engine::BlockLease& block : pull.blocks) {
    block.mark(engine::BlockUse::Quarantined);
  }
  if (pull.user && !parts_.links.abort(*pull.user, reason)) {
    pull.user.reset();
  }
  pull.limit = parts_.executor.call_after(kQuietLimit, [this, id] {
    if (Pull* pull = find(id); pull != nullptr && pull->user) {
      // With it ends the inlet that the decode node writes through.
      parts_.links.give_up(*pull->user,
                           {ErrorCode::PeerStalled, "a pull that was given up is not quiet"});
    }
  });
  if (fence_is_coming) {
    return;
  }
  auto done = on_strand([this, id] { fenced(id); });
  if (pull.receiver != nullptr) {
    pull.receiver->revoke(std::move(done));
  } else {
    done();
  }
}

void Pulls::writer_quiesced(PullId id) {
  Pull* pull = find(id);
  if (pull != nullptr && pull->state == State::Quarantined && pull->receiver != nullptr) {
    // Where the writer puts, this is what the fence waits for.
    pull->receiver->writer_quiesced();
  }
}

Pulls::Pull* Pulls::find(PullId id) {
  const auto found = pulls_.find(id);
  return found == pulls_.end() ? nullptr : &found->second;
}

}  // namespace baton::prefill_node
