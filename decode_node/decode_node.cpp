#include "decode_node/decode_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/wire/convert.h"

namespace baton::decode_node {
namespace {

// Guesses make no step longer: its target, else the pace promised to the quickest tier.
std::chrono::duration<double> longest_draft_step(const ClusterConfig& config) {
  if (config.decode.itl_target.count() > 0) {
    return config.decode.itl_target;
  }
  return std::ranges::min(config.slo.tiers, {}, &TierSlo::itl).itl;
}

// How long a grant waits for a heartbeat of its writer that names it. A prefill node names a
// request from its arrival on; before that it may have to dial, which it gives up after 2 s. Twice
// the silence after which its connection would be dead, so that a live one is never doubted.
std::chrono::milliseconds longest_silence(const ClusterSection& cluster) {
  constexpr std::chrono::milliseconds kDial{2'000};
  return kDial + 2 * cluster.dead_after * cluster.heartbeat;
}

}  // namespace

DecodeNode::DecodeNode(node::RoleDeps deps)
    : deps_(std::move(deps)),
      probe_(deps_.metrics),
      kv_probe_(deps_),
      steps_(deps_.control, deps_.engine, deps_.runner, deps_.kv.arena()),
      stream_([this](node::ClientId client, wire::Frame frame) {
        gateways_->send(client, std::move(frame));
      }),
      drain_(
          deps_,
          {.is_idle = [this] { return scheduler_->num_running() == 0 && grants_->num_open() == 0; },
           .announce = [this] { gateways_->beat_now(); },
           .hand_back =
               [this](const Error& why) {
                 grants_->end_all(why);
                 scheduler_->hand_back(why);
               }}) {}

Status DecodeNode::start() {
  auto listener = deps_.network.listen(
      deps_.entry.control_listen,
      [this](const wire::Hello& hello) -> HelloAnswer {
        if (auto refusal = check_hello(hello, deps_.identity.expects({"prefill"}))) {
          deps_.log.warn("refused {} {}: {}", hello.role(), hello.node(), refusal->message());
          return *refusal;
        }
        wire::Welcome welcome = deps_.identity.welcome(hello);
        welcome.set_heartbeat_ms(
            static_cast<std::uint32_t>(deps_.config.cluster.heartbeat.count()));
        // A way in of its own for each connection; it waits here for the channel.
        auto inlet = deps_.transport.open_inlet();
        if (!inlet) {
          deps_.log.error("no way in for {}: {}", hello.node(), inlet.error().message);
          return to_refusal(inlet.error(), "worker_address");
        }
        const auto& address = (*inlet)->address();
        welcome.set_worker_address(address.data(), address.size());
        welcome.set_digest(std::string(to_string(deps_.digest)));
        inlets_[hello.node()] = std::move(*inlet);
        return welcome;
      },
      [this](std::unique_ptr<Channel> channel, const wire::Hello& hello) {
        auto inlet = inlets_.extract(hello.node());
        writers_->add(std::move(channel), hello, inlet ? std::move(inlet.mapped()) : nullptr);
      });
  if (!listener) {
    return std::unexpected(listener.error());
  }
  listener_ = std::move(*listener);
  deps_.identity.control_address =
      deps_.entry.advertise.empty() ? listener_->address() : deps_.entry.advertise;
  make_grants();
  make_scheduler();
  gateways_->start();
  return {};
}

void DecodeNode::make_grants() {
  grants_ = std::make_unique<GrantTable>(
      deps_.control,
      deps_.transport,
      deps_.kv,
      deps_.random,
      GrantOptions{.node = deps_.identity.name,
                   .incarnation = deps_.identity.incarnation,
                   .control_address = deps_.identity.control_address,
                   .vocab_size = deps_.identity.model.vocab_size(),
                   .ttl = longest_silence(deps_.config.cluster),
                   .digest = deps_.digest},
      GrantHandlers{
          .on_verified =
              [this](std::unique_ptr<Grant> grant) { service_->on_verified(std::move(grant)); },
          .on_cancelled = [this](GrantState state) { probe_.cancelled(phase_of(state)); },
          .on_failed =
              [this](const Grant& grant, const Error& why) {
                deps_.log.warn("request {:016x}: {}", grant.request.id.value, why.message);
                probe_.handed_back(why.code);
                stream_.send_now(
                    grant.client,
                    node::error_event(
                        grant.request.id, grant.request.attempt, grant.request.choice, why));
              },
          .send_abort = [this](WriterId writer,
                               const wire::Abort& abort) { writers_->send_abort(writer, abort); },
          .on_freed =
              [this] {
                scheduler_->blocks_freed();
                room_freed();
              }});
  const auto& cluster = deps_.config.cluster;
  pulls_ =
      std::make_unique<PullService>(deps_.control, deps_.transport, deps_.kv, probe_, deps_.digest);
  writers_ = std::make_unique<Writers>(deps_.control,
                                       deps_.transport,
                                       *grants_,
                                       *pulls_,
                                       HeartbeatLimits{.period = cluster.heartbeat,
                                                       .suspect_after = cluster.suspect_after,
                                                       .dead_after = cluster.dead_after},
                                       deps_.log);
}

void DecodeNode::make_scheduler() {
  const DecodeSection& config = deps_.config.decode;
  const SpeculationSection& speculation = config.speculation;
  scheduler_ = std::make_unique<Scheduler>(
      deps_.control,
      steps_,
      deps_.kv,
      stream_,
      probe_,
      Scheduler::Options{
          .limits = {.max_batch = config.max_batch,
                     .prefill_tokens = config.local_prefill_chunk,
                     .step_seconds = std::chrono::duration<double>(config.itl_target).count()},
          .drafts = {.mode = speculation.mode == "draft" ? engine::DraftMode::Model
                                                         : engine::DraftMode::Ngram,
                     .max_tokens = speculation.mode == "off" ? 0 : speculation.max_tokens,
                     .min_match = speculation.min_match,
                     .step_seconds = longest_draft_step(deps_.config).count()},
          .node = deps_.identity.name},
      [this] { room_freed(); },
      deps_.grammars);
  service_ = std::make_unique<Service>(
      Service::Parts{
          .grants = *grants_,
          .scheduler = *scheduler_,
          .writers = *writers_,
          .stream = stream_,
          .kv = deps_.kv,
          .probe = probe_,
          .artifacts = deps_.artifacts,
          .identity = deps_.identity,
          .drain = drain_,
          .log = deps_.log,
          .life_of = [this](node::ClientId client) { return gateways_->life_of(client); },
          .tell_load = [this](node::ClientId client) { gateways_->beat_now(client); }},
      config);
  gateways_ = std::make_unique<node::GatewayLinks>(
      deps_,
      node::GatewayHandlers{
          .make_heartbeat = [this] { return heartbeat(); },
          .on_frame =
              [this](node::ClientId client, Channel& channel, wire::Frame frame) {
                service_->on_frame(client, channel, std::move(frame));
              },
          .on_lost = [this](node::ClientId client) { service_->on_client_lost(client); }});
}

void DecodeNode::room_freed() {
  if (service_ != nullptr) {
    service_->on_room();
  }
  drain_.check();
}

wire::Heartbeat DecodeNode::heartbeat() {
  const auto transfer = deps_.transport.stats();
  kv_probe_.update(transfer);
  probe_.update(scheduler_->num_running(), *grants_);
  wire::Heartbeat beat;
  beat.set_draining(drain_.is_draining());
  wire::NodeLoad& load = *beat.mutable_load();
  node::fill_load(load, deps_.kv);
  node::fill_ticks(load, deps_.transport);
  load.set_running(scheduler_->num_running() + grants_->num_open());
  load.set_queued_tokens(scheduler_->num_queued_tokens());
  load.set_decode_step_ms(static_cast<float>(scheduler_->step_seconds() * 1e3));
  load.set_max_batch(scheduler_->batch_limit());
  load.set_local_prefill_max_tokens(deps_.config.decode.local_prefill_max_tokens);
  load.set_engine_steps(scheduler_->num_steps());
  load.set_requests_taken(service_->num_taken());
  return beat;
}

bool DecodeNode::is_ready() const {
  return gateways_ != nullptr && gateways_->num_up() > 0 && !drain_.is_draining();
}

void DecodeNode::drain(std::chrono::milliseconds limit, std::function<void()> drained) {
  drain_.start(limit, std::move(drained));
}

void DecodeNode::stop() {
  if (gateways_ == nullptr) {
    return;  // never started
  }
  drain_.stop();
  const Error why{ErrorCode::Unavailable, "node " + deps_.identity.name + " is shutting down"};
  grants_->end_all(why);
  scheduler_->end_all(why);
  listener_->stop();
  writers_->close_all();
  gateways_->stop();
}

}  // namespace baton::decode_node
