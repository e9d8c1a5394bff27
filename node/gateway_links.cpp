#include "node/gateway_links.h"

#include <algorithm>
#include <utility>

namespace baton::node {
namespace {

// While more is queued for a gateway that does not read, its heartbeats carry load alone.
constexpr std::size_t kMaxQueuedBytes = std::size_t{512} << 10;

}  // namespace

GatewayLinks::GatewayLinks(const RoleDeps& deps, GatewayHandlers handlers)
    : executor_(deps.control),
      heartbeat_(deps.config.cluster.heartbeat),
      index_(deps.kv.index()),
      log_(deps.log),
      handlers_(std::move(handlers)),
      can_change_role_(deps.change_role != nullptr) {
  for (const std::string& address : deps.config.cluster.gateways) {
    auto link = std::make_unique<Link>();
    Link* raw = link.get();
    PeerLinkOptions options;
    options.address = address;
    link->peer = std::make_unique<PeerLink>(
        executor_,
        deps.network,
        deps.random,
        options,
        PeerLinkHandlers{
            .make_hello =
                [this, &identity = deps.identity] {
                  wire::Hello hello = identity.hello();
                  *hello.mutable_load() = handlers_.make_heartbeat().load();
                  return hello;
                },
            .on_up = [this, raw](Channel&, const wire::Welcome& welcome) { on_up(*raw, welcome); },
            .on_frame =
                [this, raw](Channel& channel, wire::Frame frame) {
                  handlers_.on_frame(raw->client, channel, std::move(frame));
                },
            .on_down = [this, raw](const Error& why) { on_down(*raw, why); },
            .on_failed =
                [this, raw](const Error& why) {
                  if (raw->told != why.message) {
                    raw->told = why.message;
                    log_.warn("gateway {}: {}", raw->peer->address(), why.message);
                  }
                }});
    links_.push_back(std::move(link));
  }
}

GatewayLinks::~GatewayLinks() {
  stop();
}

void GatewayLinks::start() {
  for (const auto& link : links_) {
    link->peer->start();
  }
}

void GatewayLinks::stop() {
  for (const auto& link : links_) {
    link->beats.reset();
    link->peer->stop();
  }
}

void GatewayLinks::on_up(Link& link, const wire::Welcome& welcome) {
  link.client = ClientId{next_client_++};
  link.life = {welcome.node(), Incarnation{welcome.incarnation()}};
  link.told.clear();
  log_.info("registered with gateway {} at {}", welcome.node(), link.peer->address());
  // The gateway may ask for a slower beat than configured here, never for none.
  const auto asked = std::chrono::milliseconds(welcome.heartbeat_ms());
  const auto period =
      asked.count() > 0 ? std::clamp(asked, heartbeat_, heartbeat_ * 20) : heartbeat_;
  link.events.emplace(index_);
  link.beats.emplace(executor_, period, [this, &link] { send_heartbeat(link); });
}

void GatewayLinks::on_down(Link& link, const Error& why) {
  link.beats.reset();
  link.events.reset();
  log_.warn("gateway {} lost: {}", link.peer->address(), why.message);
  handlers_.on_lost(std::exchange(link.client, ClientId{}));
}

void GatewayLinks::send_heartbeat(Link& link) {
  if (Channel* channel = link.peer->channel()) {
    wire::Frame frame;
    wire::Heartbeat& beat = *frame.mutable_heartbeat();
    beat = handlers_.make_heartbeat();
    beat.set_may_change_role(is_controller(link));
    if (link.events && channel->queued_bytes() < kMaxQueuedBytes) {
      if (auto events = link.events->next()) {
        *beat.mutable_kv_events() = std::move(*events);
      }
    }
    channel->send(std::move(frame));
  }
}

bool GatewayLinks::is_controller(const Link& link) const {
  const auto first = std::ranges::find_if(links_, [](const auto& l) { return l->peer->is_up(); });
  return can_change_role_ && first != links_.end() && first->get() == &link;
}

void GatewayLinks::beat_now() {
  for (const auto& link : links_) {
    send_heartbeat(*link);
  }
}

void GatewayLinks::beat_now(ClientId client) {
  if (Link* link = link_of(client)) {
    send_heartbeat(*link);
  }
}

void GatewayLinks::send(ClientId client, wire::Frame frame) {
  const Link* link = link_of(client);
  if (Channel* channel = link == nullptr ? nullptr : link->peer->channel()) {
    channel->send(std::move(frame));
  }
}

const GatewayLife* GatewayLinks::life_of(ClientId client) const {
  const Link* link = link_of(client);
  return link == nullptr ? nullptr : &link->life;
}

GatewayLinks::Link* GatewayLinks::link_of(ClientId client) const {
  const auto found =
      std::ranges::find_if(links_, [client](const auto& link) { return link->client == client; });
  return client == ClientId{} || found == links_.end() ? nullptr : found->get();
}

ClientId GatewayLinks::client_of(const GatewayLife& gateway) const {
  const auto found = std::ranges::find_if(links_, [&](const auto& link) {
    return link->client != ClientId{} && link->life == gateway;
  });
  return found == links_.end() ? ClientId{} : (*found)->client;
}

std::uint32_t GatewayLinks::num_up() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(links_, [](const auto& link) { return link->peer->is_up(); }));
}

}  // namespace baton::node
