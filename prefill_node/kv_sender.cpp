#include "prefill_node/kv_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/check.h"
#include "common/wire/convert.h"

namespace baton::prefill_node {
namespace {

constexpr std::chrono::milliseconds kCommitTimeout{10'000};
constexpr int kLooks = 8;  // at a transfer, before it counts as one that stands still

}  // namespace

void LayerSend::post(std::uint32_t layer) const {
  if (context != nullptr) {
    sender->send_converted(layer, first, count, context);
  } else {
    sender->send_layer(layer, first, blocks);
  }
}

KvSender::KvSender(Executor& executor,
                   transfer::Transport& transport,
                   DecodeLinks& links,
                   KvLayout layout,
                   KvGrant grant,
                   std::uint32_t context,
                   transfer::DigestMode digest,
                   Handlers handlers)
    : executor_(executor),
      transport_(transport),
      links_(links),
      layout_(layout),
      grant_(std::move(grant)),
      target_(grant_.layout.layers > 0 ? grant_.layout : layout),
      context_(context),
      total_blocks_(target_.blocks_for(context)),
      digest_(digest),
      handlers_(std::move(handlers)),
      num_sent_(grant_.prefix_blocks) {}

KvSender::~KvSender() {
  if (user_) {
    links_.leave(*user_);
  }
}

void KvSender::post(std::function<void()> task) {
  executor_.post([alive = std::weak_ptr<bool>(alive_), task = std::move(task)] {
    if (!alive.expired()) {
      task();
    }
  });
}

void KvSender::start(bool is_bound) {
  user_ = links_.join(grant_,
                      LinkUser{.on_up = [this] { on_up(); },
                               .on_lost =
                                   [this](const Error& why) {
                                     user_.reset();
                                     fail(why);
                                   },
                               .on_abort = [this](const Error& why) { fail(why); }},
                      LeaseOwner::DecodeNode,
                      is_bound);
}

bool KvSender::apply(SendEvent event) {
  const auto next = next_state(state_, event);
  state_ = next.value_or(state_);
  return next.has_value();
}

transfer::DigestMode KvSender::digest_mode() const {
  return user_ ? transfer::stricter(digest_, links_.digest(*user_)) : digest_;
}

void KvSender::on_up() {
  if (!next_state(state_, SendEvent::Up)) {
    return;
  }
  if (total_blocks_ > grant_.prefix_blocks) {
    auto sender = transport_.begin(links_.peer(*user_), grant_, digest_mode());
    if (!sender) {
      fail(sender.error());
      return;
    }
    sender_ = std::move(*sender);
    watch();
  }
  apply(SendEvent::Up);
  send_pending();
  if (facts_) {
    flush();
  }
}

void KvSender::watch() {
  const transfer::Progress now = sender_->progress();
  const std::chrono::milliseconds limit = links_.stall_limit();
  if (!now.is_waiting || !seen_.is_waiting || now.moves != seen_.moves) {
    moved_ = executor_.now();
  } else if (executor_.now() - moved_ >= limit) {
    fail({ErrorCode::PeerStalled,
          fmt::format("no byte of the transfer has moved for {} ms", limit.count())});
    return;
  }
  seen_ = now;
  watch_ = executor_.call_after(limit / kLooks, [this] { watch(); });
}

void KvSender::fail(const Error& why) {
  if (has_failed_ || !next_state(state_, SendEvent::Abort)) {
    return;
  }
  has_failed_ = true;
  handlers_.on_failed(why);
}

std::uint32_t KvSender::complete_blocks(std::uint32_t tokens) const {
  if (tokens >= context_) {
    return total_blocks_;
  }
  const std::uint32_t full = tokens / layout_.block_tokens * layout_.block_tokens;
  return full / target_.block_tokens;
}

void KvSender::computed(std::span<const BlockId> table, std::uint32_t tokens) {
  table_.assign(table.begin(), table.end());
  computed_ = tokens;
  if (state_ == SendState::Streaming) {
    send_pending();
  }
}

LayerSend KvSender::make_send(std::span<const BlockId> table, std::uint32_t tokens) const {
  const std::uint32_t complete = complete_blocks(tokens);
  LayerSend send{.sender = sender_, .first = num_sent_ - grant_.prefix_blocks};
  if (target_ == layout_) {
    send.blocks.assign(table.begin() + num_sent_, table.begin() + complete);
  } else {
    send.count = complete - num_sent_;
    send.context = std::make_shared<transfer::ContextBlocks>(
        transfer::ContextBlocks{{table.begin(), table.end()}, tokens});
  }
  return send;
}

void KvSender::send_pending() {
  const std::uint32_t complete = complete_blocks(computed_);
  if (sender_ == nullptr || complete <= num_sent_) {
    return;
  }
  const LayerSend all = make_send(table_, computed_);
  for (std::uint32_t layer = 0; layer < layout_.layers; ++layer) {
    all.post(layer);
  }
  num_sent_ = complete;
}

std::optional<LayerSend> KvSender::plan_step(std::span<const BlockId> table, std::uint32_t tokens) {
  const std::uint32_t complete = complete_blocks(tokens);
  if (state_ != SendState::Streaming || sender_ == nullptr || complete <= num_sent_) {
    return std::nullopt;
  }
  LayerSend send = make_send(table, tokens);
  num_sent_ = complete;
  return send;
}

void KvSender::commit(const CommitFacts& facts) {
  facts_ = facts;
  commit_asked_ = executor_.now();
  flush();
}

void KvSender::flush() {
  if (!apply(SendEvent::Flush)) {
    return;  // on_up comes back to it
  }

  BATON_CHECK(std::max(num_sent_, grant_.prefix_blocks) >= total_blocks_,
              "a commit before every block was sent");
  if (sender_ == nullptr) {
    send_commit({.digest_mode = digest_mode()});
    return;
  }
  sender_->finish([this, &executor = executor_, alive = std::weak_ptr<bool>(alive_)](
                      const Result<transfer::Sent>& sent) {
    executor.post([this, alive, sent] {
      if (!alive.expired()) {
        flushed(sent);
      }
    });
  });
}

void KvSender::flushed(Result<transfer::Sent> sent) {
  if (!next_state(state_, SendEvent::Commit)) {
    return;
  }
  if (!sent) {
    fail(sent.error());
    return;
  }
  send_commit(*sent);
}

void KvSender::send_commit(const transfer::Sent& sent) {
  Channel* channel = user_ ? links_.channel(*user_) : nullptr;
  if (channel == nullptr) {
    return;  // on_lost is on its way
  }
  apply(SendEvent::Commit);
  watch_.cancel();
  wire::Frame frame;
  wire::Commit& commit = *frame.mutable_commit();
  set_lease(commit, grant_.lease, grant_.epoch);
  commit.set_choice(facts_->choice);
  commit.set_first_token(facts_->first_token);
  commit.set_first_index(facts_->first_index);
  commit.set_token_count(facts_->token_count);
  commit.set_bytes(sent.bytes);
  commit.set_digest(sent.digest);
  commit.set_digest_mode(static_cast<std::uint32_t>(sent.digest_mode));
  commit.set_transfer_us(static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(executor_.now() - commit_asked_)
          .count()));
  channel->call(std::move(frame),
                kCommitTimeout,
                [this, bytes = sent.bytes, alive = std::weak_ptr<bool>(alive_)](
                    const Result<wire::Frame>& answer) {
                  if (alive.expired() || !next_state(state_, SendEvent::Accepted)) {
                    return;
                  }
                  if (!answer) {
                    fail(answer.error());
                    return;
                  }
                  apply(SendEvent::Accepted);
                  handlers_.on_committed(bytes);
                });
}

void KvSender::abort(const std::string& reason, std::function<void()> done) {
  const bool is_first = apply(SendEvent::Abort);
  BATON_CHECK(is_first, "aborted once, and not after its end");
  aborted_ = std::move(done);
  watch_.cancel();
  if (user_ && !links_.abort(*user_, reason)) {
    user_.reset();
  }
  if (sender_ == nullptr) {
    post([this] { quiesced(); });
    return;
  }
  quiet_limit_ = executor_.call_after(kQuietLimit, [this] {
    if (user_) {
      links_.give_up(*user_, {ErrorCode::PeerStalled, "an aborted transfer does not come to rest"});
    }
  });
  sender_->abort([this, &executor = executor_, alive = std::weak_ptr<bool>(alive_)] {
    executor.post([this, alive] {
      if (!alive.expired()) {
        quiesced();
      }
    });
  });
}

void KvSender::quiesced() {
  if (!apply(SendEvent::Quiet)) {
    return;
  }
  quiet_limit_.cancel();
  if (Channel* channel = user_ ? links_.channel(*user_) : nullptr) {
    wire::Frame frame;
    set_lease(*frame.mutable_quiesced(), grant_.lease, grant_.epoch);
    channel->send(std::move(frame));
  }
  std::exchange(aborted_, nullptr)();
}

}  // namespace baton::prefill_node
