#include "gateway/cluster/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/rpc/hello_check.h"
#include "common/wire/convert.h"

namespace baton::gateway {
namespace {

wire::Refusal refusal(std::string field, std::string message) {
  wire::Refusal answer;
  answer.set_code(std::string(to_string(ErrorCode::Mismatch)));
  answer.set_field(std::move(field));
  answer.set_message(std::move(message));
  return answer;
}

// What must be equal for two nodes to give the same tokens.
std::uint64_t stamp_of(const wire::ModelIdentity& model) {
  std::uint64_t stamp = 0x9e3779b97f4a7c15ULL;
  for (const std::uint64_t part :
       {model.weights_hash(), model.tokenizer_hash(), model.numerics_hash()}) {
    stamp = (stamp ^ part) * 0xff51afd7ed558ccdULL;
    stamp ^= stamp >> 32U;
  }
  return stamp == 0 ? 1 : stamp;
}

// FNV-1a: the same on every gateway.
std::uint64_t hash_of(const NodeName& name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace

NodeView Node::view(TimePoint now) const {
  NodeView view;
  view.handle = handle;
  view.role = role;
  view.name_hash = name_hash;
  view.model_stamp = model_stamp;
  view.layout = layout;
  view.numerics_hash = model.numerics_hash();
  view.is_alive = health == PeerHealth::Alive;
  view.is_draining = this->is_draining();
  view.is_busy = busy;
  view.block_tokens = std::max(1U, model.layout().block_tokens());
  view.credits_left = load.credit_limit() > credits_used ? load.credit_limit() - credits_used : 0;
  view.work_s = work.left(now);
  view.foreign_tokens = foreign_tokens;
  view.queued_tokens = tokens_given + foreign_tokens;
  view.prefill_tokens_per_s = load.prefill_tokens_per_s();
  view.running = std::max(load.running(), sequences_given);
  view.max_batch = load.max_batch();
  view.blocks_total = load.blocks_total();
  view.blocks_free = load.blocks_free();
  view.local_prefill_max_tokens = load.local_prefill_max_tokens();
  view.step_s = load.decode_step_ms() / 1e3F;
  return view;
}

Membership::Membership(Executor& executor,
                       Network& network,
                       const Logger& log,
                       ClusterSection options,
                       NodeName gateway_name,
                       Incarnation incarnation,
                       MembershipHandlers handlers)
    : executor_(executor),
      network_(network),
      log_(log),
      options_(std::move(options)),
      gateway_name_(std::move(gateway_name)),
      incarnation_(incarnation),
      handlers_(std::move(handlers)) {}

Membership::~Membership() {
  stop();
}

Status Membership::listen(const std::string& address) {
  auto listener = network_.listen(
      address,
      [this](const wire::Hello& hello) { return on_hello(hello); },
      [this](std::unique_ptr<Channel> channel, wire::Hello hello) {
        on_accept(std::move(channel), std::move(hello));
      });
  if (!listener) {
    return std::unexpected(listener.error());
  }
  listener_ = std::move(*listener);
  return {};
}

std::string Membership::address() const {
  return listener_ ? listener_->address() : "";
}

void Membership::stop() {
  stopped_ = true;
  if (listener_) {
    listener_->stop();
  }
  for (auto& [name, node] : nodes_) {
    node->channel->close();
  }
  nodes_.clear();
  models_.clear();
}

const Node* Membership::other_with_address(const wire::Hello& hello) const {
  const auto found = std::ranges::find_if(nodes_, [&](const auto& entry) {
    const Node& node = *entry.second;
    return node.name != hello.node() && node.control_address == hello.control_address() &&
           node.health == PeerHealth::Alive;
  });
  return hello.control_address().empty() || found == nodes_.end() ? nullptr : found->second.get();
}

std::optional<wire::Refusal> Membership::check(const wire::Hello& hello) const {
  const auto same_name = nodes_.find(hello.node());
  HelloExpectations expected;
  expected.cluster_token = options_.token;
  expected.roles = {"prefill", "decode"};
  const auto model = models_.find(hello.model().id());
  // A model whose only node comes back may come back changed.
  const bool alone = model != models_.end() && model->second.nodes == 1 &&
                     same_name != nodes_.end() &&
                     same_name->second->model.id() == hello.model().id();
  const bool compare = model != models_.end() && !alone;
  if (compare) {
    expected.model = model->second.identity;
    expected.ucx_version = model->second.ucx_version;
  }
  if (auto refused = check_hello(hello, expected)) {
    return refused;
  }
  if (same_name != nodes_.end() && same_name->second->health == PeerHealth::Alive &&
      same_name->second->incarnation.value != hello.incarnation()) {
    // Two processes of one name would take each other's place for ever. One that was started anew
    // gets in once the heartbeats of its old life are missed.
    wire::Refusal taken = refusal(
        "node",
        fmt::format("a node named '{}' is here and alive, connected from {}; names are unique",
                    hello.node(),
                    same_name->second->channel->remote()));
    taken.set_code(std::string(to_string(ErrorCode::Busy)));
    return taken;
  }
  if (const Node* other = other_with_address(hello)) {
    // Requests of the one would go to the other. As with names: a dead one's address is free.
    wire::Refusal taken = refusal(
        "control_address",
        fmt::format("node '{}' is here and alive, connected from {}, and is dialled at {} as well; "
                    "give each an address of its own, by control_listen or advertise of {}.pool",
                    other->name,
                    other->channel->remote(),
                    hello.control_address(),
                    hello.role()));
    taken.set_code(std::string(to_string(ErrorCode::Busy)));
    return taken;
  }
  if (const auto stuck = stuck_.find(hello.node());
      stuck != stuck_.end() && stuck->second.first.value == hello.incarnation() &&
      stuck->second.second == hello.load().reactor_ticks()) {
    return refusal("load.reactor_ticks", "the data thread of this node stands still; restart it");
  }
  if (!hello.has_model() || hello.model().id().empty()) {
    return refusal("model", "a node must say which model it serves");
  }
  if (hello.model().context_length() == 0 || hello.model().vocab_size() == 0) {
    return refusal("model.context_length", "context length and vocabulary size must not be 0");
  }
  if (compare && model->second.identity.weights_hash() != hello.model().weights_hash()) {
    return refusal("model.weights_hash",
                   fmt::format("the weights of '{}' differ from those of the nodes already here",
                               hello.model().id()));
  }
  if (same_name != nodes_.end() &&
      (same_name->second->role == NodeRole::Decode) != (hello.role() == "decode")) {
    return refusal(
        "node", fmt::format("a node named '{}' with the other role is registered", hello.node()));
  }
  return std::nullopt;
}

HelloAnswer Membership::on_hello(const wire::Hello& hello) {
  if (auto refused = check(hello)) {
    ++stats_.refused;
    log_.warn("refused node '{}': {}: {}", hello.node(), refused->field(), refused->message());
    return *refused;
  }
  wire::Welcome welcome;
  welcome.set_wire_minor(std::min(kWireMinor, hello.wire_minor()));
  welcome.set_node(gateway_name_);
  welcome.set_incarnation(incarnation_.value);
  welcome.set_heartbeat_ms(static_cast<std::uint32_t>(options_.heartbeat.count()));
  return welcome;
}

void Membership::on_accept(std::unique_ptr<Channel> channel, wire::Hello hello) {
  if (stopped_ || check(hello)) {  // another node may have come between
    channel->close();
    return;
  }
  if (const auto old = nodes_.find(hello.node()); old != nodes_.end()) {
    ++stats_.replaced;
    drop(old->second->handle,
         Error{ErrorCode::StaleIncarnation,
               fmt::format("node '{}' has started anew", hello.node())});
  }
  auto node = std::make_unique<Node>();
  stuck_.erase(hello.node());
  node->handle = NodeHandle{next_handle_++};
  node->name = hello.node();
  node->name_hash = hash_of(node->name);
  node->role = hello.role() == "decode" ? NodeRole::Decode : NodeRole::Prefill;
  node->incarnation = Incarnation{hello.incarnation()};
  node->control_address = hello.control_address();
  node->model = hello.model();
  node->model_stamp = stamp_of(node->model);
  node->layout = from_wire(node->model.layout()).value_or(KvLayout{});
  node->load = hello.load();
  node->channel = std::move(channel);
  const NodeHandle handle = node->handle;
  node->channel->set_handlers(
      [this, handle](wire::Frame frame) { on_frame(handle, std::move(frame)); },
      [this, handle](const Error& error) { drop(handle, error); });
  node->watch = std::make_unique<HeartbeatWatch>(
      executor_, limits(), [this, handle](PeerHealth health) { on_health(handle, health); });
  ModelEntry& model = models_[hello.model().id()];
  if (model.nodes++ == 0) {
    model.identity = hello.model();
    model.ucx_version = hello.ucx_version();
  }
  ++stats_.registered;
  log_.info("node '{}' ({}) is up, serving '{}'", node->name, hello.role(), hello.model().id());
  Node& registered = *(nodes_[hello.node()] = std::move(node));
  handlers_.on_up(registered);
}

Node* Membership::find(NodeHandle handle) {
  for (auto& [name, node] : nodes_) {
    if (node->handle == handle) {
      return node.get();
    }
  }
  return nullptr;
}

void Membership::on_frame(NodeHandle handle, wire::Frame frame) {
  Node* node = find(handle);
  if (node == nullptr) {
    return;
  }
  node->watch->beat();
  switch (frame.body_case()) {
    case wire::Frame::kHeartbeat:
      return on_heartbeat(*node, *frame.mutable_heartbeat());
    case wire::Frame::kTokens:
      return handlers_.on_tokens(*node, frame.tokens());
    case wire::Frame::kGranted:
      return handlers_.on_granted(*node, *frame.mutable_granted());
    default:
      ++stats_.bad_frames;
      if (frame.call() != 0) {
        node->channel->answer_error(
            frame, Error{ErrorCode::ProtocolError, "a gateway does not take this message"});
      }
  }
}

HeartbeatLimits Membership::limits() const {
  return HeartbeatLimits{options_.heartbeat, options_.suspect_after, options_.dead_after};
}

void Membership::on_heartbeat(Node& node, wire::Heartbeat& beat) {
  if (beat.has_load()) {
    node.load.Swap(beat.mutable_load());
    node.foreign_tokens = node.load.queued_tokens() -
                          std::min<std::uint64_t>(node.load.queued_tokens(), node.contexts_given);
    if (node.reactor.beat(node.load.reactor_ticks(), executor_.now(), limits()) ==
        PeerHealth::Dead) {
      stuck_[node.name] = {node.incarnation, node.load.reactor_ticks()};
      return drop(node.handle, Error{ErrorCode::PeerStalled, "its data thread stands still"});
    }
    if (judge(node) && node.health == PeerHealth::Suspect) {
      log_.warn("the data thread of node '{}' stands still; no new work for it", node.name);
    }
  }
  node.draining = beat.draining();
  node.may_change_role = beat.may_change_role();
  node.busy = false;
  if (beat.has_kv_events()) {
    handlers_.on_kv_events(node, beat.kv_events());
  }
  handlers_.on_change(node);
}

bool Membership::judge(Node& node) {
  const PeerHealth health = std::max(node.watch->health(), node.reactor.health());
  return std::exchange(node.health, health) != health;
}

void Membership::on_health(NodeHandle handle, PeerHealth health) {
  Node* node = find(handle);
  if (node == nullptr) {
    return;
  }
  if (health == PeerHealth::Dead) {
    return drop(handle, Error{ErrorCode::PeerStalled, "heartbeats stopped"});
  }
  if (health == PeerHealth::Suspect) {
    log_.warn("node '{}' misses heartbeats; no new work for it", node->name);
  } else {
    log_.info("node '{}' is heard again", node->name);
  }
  if (judge(*node)) {
    handlers_.on_change(*node);
  }
}

bool Membership::drain(const NodeName& name,
                       std::chrono::milliseconds limit,
                       const std::string& then_role) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) {
    return false;
  }
  Node& node = *found->second;
  log_.info("node '{}' is to drain within {} ms", name, limit.count());
  node.drain_asked = true;
  wire::Frame frame;
  frame.mutable_drain()->set_limit_ms(static_cast<std::uint64_t>(limit.count()));
  frame.mutable_drain()->set_then_role(then_role);
  node.channel->send(std::move(frame));
  handlers_.on_change(node);
  return true;
}

void Membership::drop(NodeHandle handle, const Error& why) {
  const auto at = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    return entry.second->handle == handle;
  });
  if (at == nodes_.end()) {
    return;
  }
  const std::shared_ptr<Node> node = std::move(at->second);
  nodes_.erase(at);
  if (const auto model = models_.find(node->model.id());
      model != models_.end() && --model->second.nodes == 0) {
    models_.erase(model);
  }
  ++stats_.lost;
  if (node->is_draining()) {
    log_.info("node '{}' has left, drained", node->name);
  } else {
    log_.warn("node '{}' is gone: {}", node->name, why.message);
  }
  node->channel->close();
  handlers_.on_down(*node, why);
  // The watch or the channel may be what called us: they must outlive this call.
  executor_.post([node] {});
}

NodeHandle Membership::handle_of(const NodeName& name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? NodeHandle{} : found->second->handle;
}

std::vector<const Node*> Membership::nodes() const {
  std::vector<const Node*> all;
  for (const auto& [name, node] : nodes_) {
    all.push_back(node.get());
  }
  return all;
}

std::vector<NodeView> Membership::views_of(const std::string& model) const {
  const TimePoint now = executor_.now();
  std::vector<NodeView> views;
  views.reserve(nodes_.size());
  for (const auto& [name, node] : nodes_) {
    if (node->model.id() == model) {
      views.push_back(node->view(now));
    }
  }
  return views;
}

std::vector<NodePair> barred_pairs(const RouteHealth& health, const Membership& membership) {
  std::vector<NodePair> handles;
  for (const RouteHealth::Pair& pair : health.barred()) {
    handles.push_back(
        {membership.handle_of(pair.prefill.name), membership.handle_of(pair.decode.name)});
  }
  return handles;
}

std::vector<NodePair> resting_parts(const RouteHealth& health,
                                    const Membership& membership,
                                    TimePoint now) {
  std::vector<NodePair> handles;
  for (const RouteHealth::Breaker& breaker : health.breakers(now)) {
    const NodePair part{membership.handle_of(breaker.part.node.name),
                        membership.handle_of(breaker.part.peer.name)};
    const bool is_here =
        part.prefill != NodeHandle{} && (part.decode != NodeHandle{} || !breaker.part.is_pair());
    if (is_here && !health.takes(breaker.part, now)) {
      handles.push_back(part);
    }
  }
  return handles;
}

}  // namespace baton::gateway
