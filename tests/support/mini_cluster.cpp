#include "tests/support/mini_cluster.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/wire/convert.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::testing {
namespace {

constexpr char kGateway[] = "10.0.0.1:7000";
constexpr std::chrono::seconds kRealLimit{60};  // a hang ends the test, nothing else hangs on it

}  // namespace

ClusterConfig default_config() {
  return {};
}

MiniNode::MiniNode(ManualExecutor& executor,
                   MemoryFabric& fabric,
                   const TransportMaker& make_transport,
                   const ScriptedOptions& model,
                   const ClusterConfig& config,
                   const NodeEntry& entry,
                   const std::string& role,
                   std::uint32_t num_blocks,
                   std::uint64_t incarnation,
                   bool has_engine_thread)
    : config_(config),
      runner_(model),
      gate_(executor),
      tokenizer_(byte_tokenizer_spec().serialize()),
      grammars_(gate_, gate_, gate_, tokenizer_, model.vocab_size) {
  auto kv = engine::KvMemory::create(
      runner_.info().layout, {.num_blocks = num_blocks, .prefix_cache = config.kv.prefix_cache});
  BATON_CHECK(kv.has_value(), "no memory for a test's arena");
  kv_ = std::move(*kv);
  if (config.decode.speculation.mode == "draft" && role == "decode") {
    ScriptedOptions other = model;
    other.weights_seed += 1;  // agrees where the model follows its habits
    draft_runner_ = std::make_unique<ScriptedRunner>(other);
    auto memory = engine::KvMemory::create(draft_runner_->info().layout,
                                           {.num_blocks = 20, .prefix_cache = false});
    BATON_CHECK(memory.has_value(), "no memory for a test's draft model");
    draft_ = std::make_unique<engine::DraftModel>(*draft_runner_, std::move(*memory), 24);
    speculative_ = std::make_unique<engine::SpeculativeRunner>(runner_, *draft_);
  }
  transport_ = make_transport(entry.name, kv_->arena());
  network_ = fabric.network(entry.name);
  artifacts_.add("tokenizer", std::string(1'300'000, 't'));
  Executor* engine = &gate_;
  if (has_engine_thread) {
    engine_ = std::make_unique<ControlThread>("engine");
    engine = &engine_->executor();
  }
  if (!config_.kv.file_tier.empty() && role == "prefill") {
    auto file = engine::TierFile::create(
        config_.kv.file_tier, config_.kv.file_tier_mb, kv_->layout().block_bytes_all_layers());
    BATON_CHECK(file.has_value(), "no file for a test's second tier");
    Executor* copier = &gate_;
    if (has_engine_thread) {
      copier_ = std::make_unique<ControlThread>("copier");
      copier = &copier_->executor();
    }
    tier_ = std::make_unique<engine::FileTier>(*kv_, gate_, *copier, std::move(*file));
  }
  node::RoleDeps deps{
      .control = gate_,
      .engine = *engine,
      .network = *network_,
      .transport = *transport_,
      .runner = speculative_ ? static_cast<engine::ModelRunner&>(*speculative_) : runner_,
      .kv = *kv_,
      .artifacts = artifacts_,
      .config = config_,
      .entry = entry,
      .identity = {.name = entry.name,
                   .role = role,
                   .incarnation = Incarnation{incarnation},
                   .cluster_token = config.cluster.token,
                   .ucx_version = transport_->ucx_version(),
                   .model = node::make_model_identity("scripted", runner_.info(), 77, 1),
                   .control_address = ""},
      .metrics = metrics_,
      .log = log_,
      .random = seeded_random(incarnation),
      .digest = transfer::DigestMode::All,
      .tier = tier_.get(),
      .grammars = &grammars_};
  if (entry.any_role) {
    deps.change_role = [this](const std::string& next) { next_role_ = next; };
  }
  if (role == "decode") {
    role_ = std::make_unique<decode_node::DecodeNode>(std::move(deps));
  } else {
    role_ = std::make_unique<prefill_node::PrefillNode>(std::move(deps));
  }
}

MiniNode::~MiniNode() {
  role_->stop();
  if (engine_ != nullptr) {
    engine_->stop();
  }
  if (copier_ != nullptr) {
    copier_->stop();
  }
  transport_->stop();
  role_.reset();
}

bool MiniNode::is_clean() const {
  kv_->check_invariants();
  const engine::BlockPool& pool = kv_->pool();
  return pool.free() + pool.count(engine::BlockUse::Cached) == pool.total() &&
         kv_->index().num_evictable() == kv_->index().num_blocks();
}

double MiniNode::metric(const std::string& name_and_labels) const {
  const std::string text = "\n" + metrics_.to_text();
  const std::string line = "\n" + name_and_labels + " ";
  const std::size_t at = text.find(line);
  return at == std::string::npos ? 0 : std::stod(text.substr(at + line.size()));
}

std::string MiniNode::describe_blocks() const {
  const engine::BlockPool& pool = kv_->pool();
  return fmt::format("{} free, {} in use, {} granted, {} quarantined, {} cached ({} evictable)",
                     pool.free(),
                     pool.count(engine::BlockUse::InUse),
                     pool.count(engine::BlockUse::Granted),
                     pool.count(engine::BlockUse::Quarantined),
                     pool.count(engine::BlockUse::Cached),
                     kv_->index().num_evictable());
}

std::vector<TokenId> Answer::output() const {
  std::vector<TokenId> list;
  for (const auto& [index, token] : tokens) {
    list.push_back(token);
  }
  return list;
}

MiniCluster::MiniCluster(TransportMaker make_transport, ScriptedOptions model, ClusterConfig config)
    : make_transport_(std::move(make_transport)),
      model_(std::move(model)),
      config_(std::move(config)) {
  config_.cluster.token = "secret";
  config_.cluster.gateways = {kGateway};
  // What decode nodes hand on goes past the gateway, but not past the test.
  fabric_.set_hook(
      [this](const std::string& from, const std::string& to, const wire::Frame& frame) {
        if (frame.has_prefill() && from != "gateway") {
          if (auto grant = from_wire(frame.prefill().grant())) {
            ++num_handed_;
            grants_[RequestId{frame.prefill().request().id()}] = std::move(*grant);
          }
        }
        return control_hook_ ? control_hook_(from, to, frame) : FrameFate{};
      });
  network_ = fabric_.network("gateway");
  auto listener = network_->listen(
      kGateway,
      [](const wire::Hello&) -> HelloAnswer {
        wire::Welcome welcome;
        welcome.set_node("gateway");
        welcome.set_incarnation(1);
        return welcome;
      },
      [this](std::unique_ptr<Channel> channel, const wire::Hello& hello) {
        accept(std::move(channel), hello);
      });
  BATON_CHECK(listener.has_value(), "the test's gateway cannot listen");
  listener_ = std::move(*listener);
}

MiniCluster::~MiniCluster() {
  channels_.clear();
  nodes_.clear();
  dead_.clear();
}

MiniNode& MiniCluster::add(const std::string& role,
                           const std::string& name,
                           std::uint32_t num_blocks) {
  NodeEntry entry;
  entry.name = name;
  entry.control_listen = "10.0.0.2:0";
  entry.any_role = config_.pools.change_roles == "on";
  auto node = std::make_unique<MiniNode>(executor_,
                                         fabric_,
                                         make_transport_,
                                         model_,
                                         config_,
                                         entry,
                                         role,
                                         num_blocks,
                                         next_incarnation_++,
                                         has_engine_threads_);
  const Status started = node->role().start();
  BATON_CHECK(started.has_value(), "a test's node did not start");
  nodes_[name] = std::move(node);
  const bool known = run_until([&] { return channel(name) != nullptr; });
  BATON_CHECK(known, "a test's node did not register");
  return *nodes_.at(name);
}

void MiniCluster::kill(const std::string& name) {
  fabric_.kill(name);
  dead_.push_back(std::move(nodes_.at(name)));
  nodes_.erase(name);
  dead_.back()->transport().stop();
  // Its connections are cut already, so this only keeps its timers from running on. The object
  // stays: a step of it may be in work.
  dead_.back()->role().stop();
}

void MiniCluster::set_stopped(const std::string& name, bool is_stopped) {
  fabric_.set_held(name, is_stopped);
  nodes_.at(name)->gate().set_held(is_stopped);
}

void MiniCluster::accept(std::unique_ptr<Channel> channel, const wire::Hello& hello) {
  const std::string node = hello.node();
  channel->set_handlers([this, node](const wire::Frame& frame) { on_frame(node, frame); },
                        [this, node](const Error&) { channels_.erase(node); });
  hellos_[node] = hello;
  channels_[node] = std::move(channel);
}

Channel* MiniCluster::channel(const std::string& node) {
  const auto found = channels_.find(node);
  return found == channels_.end() ? nullptr : found->second.get();
}

void MiniCluster::close_gateway(const std::string& node) {
  channels_.erase(node);
}

void MiniCluster::on_frame(const std::string& node, const wire::Frame& frame) {
  if (frame.has_heartbeat()) {
    beats_[node] = frame.heartbeat();
    if (frame.heartbeat().has_kv_events()) {
      kv_events_[node].push_back(frame.heartbeat().kv_events());
    }
  }
  if (frame.has_granted()) {
    on_granted(frame.granted());
  }
  for (const wire::TokenEvent& message : frame.tokens().events()) {
    auto event = from_wire(message);
    BATON_CHECK(event.has_value(), "a node sent a broken event");
    on_event(node, *event);
  }
}

void MiniCluster::on_event(const std::string& node, const TokenEvent& event) {
  Answer& answer = answers_[event.request];
  for (std::size_t i = 0; i < event.tokens.size(); ++i) {
    const auto index = event.index + static_cast<std::uint32_t>(i);
    answer.repeated = !answer.tokens.emplace(index, event.tokens[i]).second || answer.repeated;
  }
  if (!event.prompt_logprobs.empty()) {
    answer.prompt_logprobs = event.prompt_logprobs;
    answer.prompt_top_logprobs = event.prompt_top_logprobs;
  }
  if (event.figures) {
    answer.figures[node] = *event.figures;
  }
  if (event.finish != FinishReason::None && !answer.is_over()) {  // the other leg tells later
    answer.finish = event.finish;
    answer.error = event.error;
    answer.refused = event.refused;
  }
}

void MiniCluster::start(const GenerateRequest& request,
                        const std::string& prefill,
                        const std::string& decode) {
  send_reserve(request, prefill, decode, false);
}

void MiniCluster::start_whole(const GenerateRequest& request,
                              const std::string& prefill,
                              const std::string& decode) {
  send_reserve(request, prefill, decode, true);
}

void MiniCluster::send(const std::string& node, wire::Frame frame) {
  channels_.at(node)->send(std::move(frame));
}

void MiniCluster::send_reserve(const GenerateRequest& request,
                               const std::string& prefill,
                               const std::string& decode,
                               bool whole) {
  wire::Frame frame;
  *frame.mutable_reserve()->mutable_request() = to_wire(request);
  frame.mutable_reserve()->set_local(prefill.empty());
  frame.mutable_reserve()->set_reserve_full(whole);
  if (const auto found = hellos_.find(prefill); found != hellos_.end()) {
    frame.mutable_reserve()->set_prefill_node(prefill);
    frame.mutable_reserve()->set_prefill_incarnation(found->second.incarnation());
  }
  answers_[request.id];
  asked_[request.id] = {request, prefill};
  channels_.at(decode)->send(std::move(frame));
}

const KvGrant& MiniCluster::reserve(const GenerateRequest& request, const std::string& decode) {
  wire::Frame frame;
  *frame.mutable_reserve()->mutable_request() = to_wire(request);
  answers_[request.id];
  channels_.at(decode)->send(std::move(frame));
  const bool granted = run_until([&] { return grants_.contains(request.id); });
  BATON_CHECK(granted, "a test's Reserve brought no grant");
  return grants_.at(request.id);
}

void MiniCluster::on_granted(const wire::Granted& granted) {
  ++num_granted_;
  auto grant = from_wire(granted.grant());
  BATON_CHECK(grant.has_value(), "a node sent a broken grant");
  const RequestId id{granted.request()};
  grants_[id] = *grant;
  const auto asked = asked_.find(id);
  if (asked != asked_.end() && !cancelled_.contains(id)) {
    prefill(asked->second.first, asked->second.second, *grant);
  }
}

void MiniCluster::prefill(const GenerateRequest& request,
                          const std::string& node,
                          const KvGrant& grant) {
  Channel* to = channel(node);
  if (to == nullptr) {
    answers_[request.id].error = Error{ErrorCode::PeerDead, "no such prefill node"};
    return;
  }
  wire::Frame frame;
  *frame.mutable_prefill()->mutable_request() = to_wire(request);
  *frame.mutable_prefill()->mutable_grant() = to_wire(grant);
  to->send(std::move(frame));
}

void MiniCluster::cancel(const GenerateRequest& request) {
  cancelled_.insert(request.id);
  for (const auto& [name, channel] : channels_) {
    wire::Frame frame;
    frame.mutable_cancel()->set_request(request.id.value);
    frame.mutable_cancel()->set_attempt(request.attempt.value);
    channel->send(std::move(frame));
  }
}

const Answer& MiniCluster::finish(const GenerateRequest& request) {
  run_until([&] { return answers_[request.id].is_over(); });
  return answers_[request.id];
}

bool MiniCluster::run_until(const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + kRealLimit;
  while (!done()) {
    if (executor_.run_one()) {
      continue;
    }
    if (std::chrono::steady_clock::now() > limit) {
      return false;
    }
    // Only a data plane's own thread, or a pause before a dial, can bring news now.
    std::this_thread::yield();
    executor_.advance(std::chrono::microseconds(20));
  }
  return true;
}

void MiniCluster::settle() {
  executor_.run_until_idle();
  run_until([this] { return all_clean(); });
}

bool MiniCluster::all_clean() const {
  for (const auto& [name, node] : nodes_) {
    if (!node->is_clean()) {
      return false;
    }
  }
  return true;
}

GenerateRequest make_request(std::uint64_t id,
                             std::size_t prompt,
                             std::uint32_t max_tokens,
                             std::uint64_t seed) {
  GenerateRequest request;
  request.id = RequestId{id};
  request.model = "scripted";
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  const RandomSource random = seeded_random(seed);
  for (std::size_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<TokenId>(random() % 1000));
  }
  return request;
}

}  // namespace baton::testing
