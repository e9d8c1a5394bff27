#include "decode_node/writers.h"

#include <utility>

#include "common/wire/convert.h"
#include "node/kv_probe.h"

namespace baton::decode_node {

Writers::Writers(Executor& executor,
                 transfer::Transport& transport,
                 GrantTable& grants,
                 PullService& pulls,
                 HeartbeatLimits limits,
                 const Logger& log)
    : executor_(executor),
      transport_(transport),
      grants_(grants),
      pulls_(pulls),
      limits_(limits),
      log_(log) {}

void Writers::add(std::unique_ptr<Channel> channel,
                  const wire::Hello& hello,
                  std::unique_ptr<transfer::Inlet> inlet) {
  auto writer = std::make_unique<Writer>();
  writer->id = WriterId{next_id_++};
  writer->node = hello.node();
  writer->incarnation = Incarnation{hello.incarnation()};
  writer->channel = std::move(channel);
  writer->inlet = std::move(inlet);
  Writer& added = *writer;
  added.channel->set_handlers(
      [this, &added](wire::Frame frame) { on_frame(added, std::move(frame)); },
      [this, id = added.id](Error why) { lost(id, why); });
  added.watch.emplace(executor_, limits_, [this, id = added.id](PeerHealth health) {
    if (health == PeerHealth::Dead) {
      lost(id, {ErrorCode::PeerStalled, "it missed its heartbeats"});
    }
  });
  pulls_.add_writer(added.id, *added.channel, hello.worker_address());
  added.data_watch.emplace(executor_, limits_, [this, id = added.id] {
    lost(id, {ErrorCode::PeerStalled, "its data thread stands still"});
  });
  log_.info("prefill node {} connected from {}", added.node, added.channel->remote());
  writers_.emplace(added.id, std::move(writer));
}

void Writers::on_frame(Writer& writer, wire::Frame frame) {
  writer.watch->beat();
  switch (frame.body_case()) {
    case wire::Frame::kHeartbeat:
      on_heartbeat(writer, frame.heartbeat());
      return;
    case wire::Frame::kCommit: {
      if (const Status status = grants_.commit(writer.id, frame.commit()); !status) {
        log_.warn("Commit of {} refused: {}", writer.node, status.error().message);
        writer.channel->answer_error(frame, status.error());
        return;
      }
      wire::Frame accepted;
      accepted.mutable_accepted();
      writer.channel->answer(frame, std::move(accepted));
      return;
    }
    case wire::Frame::kPull:
      pulls_.pull(writer.id, frame);
      return;
    case wire::Frame::kAbort:
      abort(writer, frame.abort());
      return;
    case wire::Frame::kQuiesced:
      grants_.quiesced(writer.id, lease_of(frame.quiesced()), Epoch{frame.quiesced().epoch()});
      return;
    default:
      writer.channel->answer_error(
          frame, {ErrorCode::ProtocolError, "a decode node takes no such message from prefill"});
  }
}

void Writers::abort(Writer& writer, const wire::Abort& message) {
  const LeaseId lease = lease_of(message);
  const Epoch epoch{message.epoch()};
  if (pulls_.abort(lease, epoch)) {
    return;  // Quiesced follows when it is
  }
  grants_.abort(lease, epoch, message.reason(), message.tell_gateway());
  // A pull that is over here, or was never begun: nothing is written under its lease.
  wire::Frame quiet;
  set_lease(*quiet.mutable_quiesced(), lease, epoch);
  writer.channel->send(std::move(quiet));
}

void Writers::on_heartbeat(Writer& writer, const wire::Heartbeat& heartbeat) {
  for (const wire::LeaseRef& ref : heartbeat.leases()) {
    if (!grants_.renew(writer.id, lease_of(ref), Epoch{ref.epoch()})) {
      wire::Abort abort;
      set_lease(abort, lease_of(ref), Epoch{ref.epoch()});
      abort.set_reason("the lease has ended");
      send_abort(writer.id, abort);
    }
  }
  writer.data_watch->beat(heartbeat.load().reactor_ticks());
  wire::Frame own;
  node::fill_ticks(*own.mutable_heartbeat()->mutable_load(), transport_);
  writer.channel->send(std::move(own));
}

WriterId Writers::find(const NodeName& node, Incarnation incarnation) const {
  WriterId newest{};  // an older one is about to be lost
  for (const auto& [id, writer] : writers_) {
    if (writer->incarnation == incarnation && writer->node == node && writer->channel->is_open()) {
      newest = id;
    }
  }
  return newest;
}

void Writers::send(WriterId writer, wire::Frame frame) {
  const auto found = writers_.find(writer);
  if (found != writers_.end()) {
    found->second->channel->send(std::move(frame));
  }
}

void Writers::send_abort(WriterId writer, const wire::Abort& abort) {
  wire::Frame frame;
  *frame.mutable_abort() = abort;
  send(writer, std::move(frame));
}

void Writers::lost(WriterId id, const Error& why) {
  const auto found = writers_.find(id);
  if (found == writers_.end()) {
    return;
  }
  log_.warn("prefill node {} lost: {}", found->second->node, why.message);
  const std::unique_ptr<Writer> writer = std::move(found->second);
  writers_.erase(found);
  pulls_.writer_lost(id);
  grants_.writer_lost(id);
}

void Writers::close_all() {
  for (const auto& [id, writer] : writers_) {
    pulls_.writer_lost(id);
    writer->channel->close();
  }
  writers_.clear();
}

}  // namespace baton::decode_node
