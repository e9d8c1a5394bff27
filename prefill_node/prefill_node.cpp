#include "prefill_node/prefill_node.h"

#include <utility>

namespace baton::prefill_node {

PrefillNode::PrefillNode(node::RoleDeps deps)
    : deps_(std::move(deps)),
      probe_(deps_.metrics),
      kv_probe_(deps_),
      steps_(deps_.control, deps_.engine, deps_.runner, deps_.kv.arena()),
      stream_([this](node::ClientId client, wire::Frame frame) {
        gateways_->send(client, std::move(frame));
      }),
      drain_(deps_,
             {.is_idle = [this] { return scheduler_->num_jobs() == 0; },
              .announce = [this] { gateways_->beat_now(); },
              .hand_back = [this](const Error& why) { scheduler_->end_all(why); }}) {}

Status PrefillNode::start() {
  const auto& cluster = deps_.config.cluster;
  const PrefillSection& config = deps_.config.prefill;
  links_ = std::make_unique<DecodeLinks>(deps_.control,
                                         deps_.network,
                                         deps_.transport,
                                         deps_.identity,
                                         HeartbeatLimits{.period = cluster.heartbeat,
                                                         .suspect_after = cluster.suspect_after,
                                                         .dead_after = cluster.dead_after},
                                         deps_.log,
                                         deps_.config.transfer.pull);
  pulls_ =
      std::make_unique<Pulls>(Pulls::Parts{.executor = deps_.control,
                                           .transport = deps_.transport,
                                           .kv = deps_.kv,
                                           .links = *links_,
                                           .probe = probe_,
                                           .log = deps_.log,
                                           .random = deps_.random,
                                           .node = deps_.identity.name,
                                           .incarnation = deps_.identity.incarnation,
                                           .enabled = deps_.config.transfer.pull,
                                           .on_freed = [this] { scheduler_->blocks_freed(); }});
  scheduler_ =
      std::make_unique<Scheduler>(Scheduler::Parts{.executor = deps_.control,
                                                   .steps = steps_,
                                                   .kv = deps_.kv,
                                                   .transport = deps_.transport,
                                                   .links = *links_,
                                                   .pulls = *pulls_,
                                                   .stream = stream_,
                                                   .probe = probe_,
                                                   .log = deps_.log,
                                                   .node = deps_.identity.name,
                                                   .digest = deps_.digest,
                                                   .tier = deps_.tier,
                                                   .on_ended = [this] { drain_.check(); },
                                                   .grammars = deps_.grammars},
                                  engine::PrefillLimits{.chunk_tokens = config.chunk_tokens,
                                                        .step_tokens = config.step_tokens});
  service_ = std::make_unique<Service>(Service::Parts{.scheduler = *scheduler_,
                                                      .stream = stream_,
                                                      .kv = deps_.kv,
                                                      .probe = probe_,
                                                      .artifacts = deps_.artifacts,
                                                      .identity = deps_.identity,
                                                      .drain = drain_,
                                                      .log = deps_.log,
                                                      .client_of =
                                                          [this](const node::GatewayLife& gateway) {
                                                            return gateways_->client_of(gateway);
                                                          }},
                                       config.credits);
  links_->set_on_handed([this](const DecodeLinks::Life& decode, const wire::Prefill& message) {
    return service_->on_handed(decode, message);
  });
  make_gateways();
  gateways_->start();
  if (deps_.tier != nullptr) {
    deps_.tier->start([this] { scheduler_->blocks_freed(); });
  }
  return {};
}

void PrefillNode::make_gateways() {
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

wire::Heartbeat PrefillNode::heartbeat() {
  const auto transfer = deps_.transport.stats();
  kv_probe_.update(transfer);
  probe_.update(scheduler_->num_waiting(), scheduler_->num_jobs());
  wire::Heartbeat beat;
  beat.set_draining(drain_.is_draining());
  wire::NodeLoad& load = *beat.mutable_load();
  node::fill_load(load, deps_.kv);
  node::fill_ticks(load, deps_.transport);
  load.set_running(static_cast<std::uint32_t>(scheduler_->num_jobs()));
  load.set_queued_tokens(scheduler_->num_queued_tokens());
  load.set_credit_limit(deps_.config.prefill.credits);
  load.set_prefill_tokens_per_s(static_cast<float>(scheduler_->tokens_per_second()));
  load.set_engine_steps(scheduler_->num_steps());
  return beat;
}

bool PrefillNode::is_ready() const {
  return gateways_ != nullptr && gateways_->num_up() > 0 && !drain_.is_draining();
}

void PrefillNode::drain(std::chrono::milliseconds limit, std::function<void()> drained) {
  drain_.start(limit, std::move(drained));
}

void PrefillNode::stop() {
  if (gateways_ == nullptr) {
    return;  // never started
  }
  drain_.stop();
  if (deps_.tier != nullptr) {
    deps_.tier->stop();
  }
  scheduler_->end_all(
      {ErrorCode::Unavailable, "node " + deps_.identity.name + " is shutting down"});
  links_->close_all();
  gateways_->stop();
}

}  // namespace baton::prefill_node
