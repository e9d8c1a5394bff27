#include "decode_node/pull_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "common/wire/convert.h"

namespace baton::decode_node {

template <class Function>
auto PullService::on_strand(Function function) {
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

void PullService::add_writer(WriterId writer, Channel& channel, std::string worker_address) {
  writers_[writer] = {.channel = &channel, .address = std::move(worker_address), .peer = nullptr};
}

void PullService::writer_lost(WriterId writer) {
  const auto found = writers_.find(writer);
  if (found == writers_.end()) {
    return;
  }
  for (auto& [number, open] : open_) {
    if (open.writer == writer) {
      abort(number, open);
    }
  }
  if (found->second.peer != nullptr) {
    found->second.peer->disconnect();  // pinned blocks must not wait for a node that is stopped
  }
  writers_.erase(found);
}

void PullService::pull(WriterId writer, const wire::Frame& frame) {
  if (const Status status = begin(writer, frame); !status) {
    probe_.pull_refused();
    writers_.at(writer).channel->answer_error(frame, status.error());
  }
}

Status PullService::connect(WriterId id, Writer& writer) {
  if (writer.peer != nullptr) {
    return {};
  }
  if (writer.address.empty()) {
    return fail(ErrorCode::InvalidArgument, "Pull: this prefill node has told no worker address");
  }
  BATON_ASSIGN(writer.peer,
               transport_.connect(std::as_bytes(std::span(writer.address)),
                                  on_strand([this, id](const Error&) {
                                    // Its sends fail by themselves; the next pull connects anew.
                                    const auto found = writers_.find(id);
                                    if (found != writers_.end()) {
                                      found->second.peer.reset();
                                    }
                                  })));
  return {};
}

Status PullService::begin(WriterId id, const wire::Frame& frame) {
  const wire::Pull& message = frame.pull();
  const KvLayout& own = kv_.layout();
  BATON_ASSIGN(const KvGrant grant, from_wire(message.grant()));
  BATON_ASSIGN(const bool converts, transfer::needs_conversion(own, grant));
  const KvLayout& theirs = converts ? grant.layout : own;
  std::uint64_t granted = 0;
  for (const BlockRun& run : grant.runs) {
    granted += run.count;
  }
  if (granted == 0 || granted != message.blocks() ||
      (grant.prefix_blocks + granted) * theirs.block_tokens !=
          static_cast<std::uint64_t>(message.tokens_size())) {
    return fail(ErrorCode::ProtocolError,
                fmt::format("Pull: {} blocks, {} granted, {} tokens",
                            message.blocks(),
                            granted,
                            message.tokens_size()));
  }
  const auto of_writer =
      std::ranges::count_if(open_, [id](const auto& item) { return item.second.writer == id; });
  if (static_cast<std::size_t>(of_writer) >= kMaxOpen) {
    return fail(ErrorCode::Busy, fmt::format("{} pulls are open, the limit", of_writer));
  }
  const std::vector<TokenId> tokens(message.tokens().begin(), message.tokens().end());
  engine::PrefixRef prefix =
      kv_.index().find(tokens, static_cast<std::uint32_t>(tokens.size() / own.block_tokens));
  const std::uint32_t held_tokens = prefix.num_blocks() * own.block_tokens;
  const std::uint32_t covered = held_tokens / theirs.block_tokens;
  if (covered <= grant.prefix_blocks) {
    return fail(ErrorCode::NotFound, "Pull: the prefix is not held here any more");
  }
  Writer& writer = writers_.at(id);
  BATON_TRY(connect(id, writer));
  BATON_ASSIGN(auto sender, transport_.begin(writer.peer, grant, digest_));

  const std::uint32_t blocks = covered - grant.prefix_blocks;
  auto context = std::make_shared<transfer::ContextBlocks>();
  context->tokens = held_tokens;
  for (std::uint32_t i = 0; i < prefix.num_blocks(); ++i) {
    context->blocks.push_back(prefix.block(i));
  }
  for (std::uint32_t layer = 0; layer < own.layers; ++layer) {
    if (converts) {
      sender->send_converted(layer, 0, blocks, context);
    } else {
      sender->send_layer(
          layer, 0, {context->blocks.begin() + grant.prefix_blocks, context->blocks.end()});
    }
  }
  const std::uint64_t number = next_number_++;
  Open& open = open_[number];
  open.writer = id;
  open.lease = grant.lease;
  open.epoch = grant.epoch;
  open.question.set_call(frame.call());
  open.prefix = std::move(prefix);
  open.blocks = blocks;
  open.sender = std::move(sender);
  open.sender->finish(
      on_strand([this, number](const Result<transfer::Sent>& sent) { flushed(number, sent); }));
  return {};
}

void PullService::flushed(std::uint64_t number, const Result<transfer::Sent>& sent) {
  const auto found = open_.find(number);
  if (found == open_.end() || found->second.is_aborted) {
    return;  // goes when it is quiet
  }
  const Open open = std::move(found->second);
  open_.erase(found);
  const auto writer = writers_.find(open.writer);
  if (writer == writers_.end()) {
    return;
  }
  if (!sent) {
    probe_.pull_refused();
    writer->second.channel->answer_error(open.question, sent.error());
    return;
  }
  probe_.pull_served(sent->bytes);
  wire::Frame answer;
  answer.mutable_pulled()->set_blocks(open.blocks);
  answer.mutable_pulled()->set_bytes(sent->bytes);
  answer.mutable_pulled()->set_digest(sent->digest);
  answer.mutable_pulled()->set_digest_mode(static_cast<std::uint32_t>(sent->digest_mode));
  writer->second.channel->answer(open.question, std::move(answer));
}

bool PullService::abort(LeaseId lease, Epoch epoch) {
  for (auto& [number, open] : open_) {
    if (open.lease == lease && open.epoch == epoch) {
      abort(number, open);
      return true;
    }
  }
  return false;
}

void PullService::abort(std::uint64_t number, Open& open) {
  if (std::exchange(open.is_aborted, true)) {
    return;
  }
  open.quiet_limit = executor_.call_after(kQuietLimit, [this, number] { give_up(number); });
  open.sender->abort(on_strand([this, number] {
    const auto found = open_.find(number);
    if (found == open_.end()) {
      return;
    }
    if (const auto writer = writers_.find(found->second.writer); writer != writers_.end()) {
      wire::Frame frame;
      set_lease(*frame.mutable_quiesced(), found->second.lease, found->second.epoch);
      writer->second.channel->send(std::move(frame));
      writer->second.channel->answer_error(found->second.question,
                                           {ErrorCode::Cancelled, "the pull was given up"});
    }
    open_.erase(found);
  }));
}

void PullService::give_up(std::uint64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) {
    return;
  }
  const auto writer = writers_.find(found->second.writer);
  if (writer == writers_.end() || writer->second.peer == nullptr) {
    return;  // its connection has ended already
  }
  // Every pull over it ends: those that are still wanted as failed, this one as quiet.
  writer->second.peer->disconnect();
  writer->second.peer.reset();
}

}  // namespace baton::decode_node
