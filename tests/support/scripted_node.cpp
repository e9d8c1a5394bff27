#include "tests/support/scripted_node.h"

#include <algorithm>

#include "common/rpc/hello_check.h"
#include "common/types/kv_layout.h"
#include "common/wire/convert.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::testing {
namespace {

constexpr std::size_t kArtifactPiece = 1000;  // small, so that several are needed

KvLayout layout_of(const ScriptedNodeOptions& options) {
  KvLayout layout;
  layout.layers = options.layers;
  layout.kv_heads = 1;
  layout.head_dim = 64;
  return layout;
}

}  // namespace

ScriptedNode::ScriptedNode(Executor& executor,
                           Network& network,
                           ScriptedCluster& cluster,
                           ScriptedNodeOptions options,
                           NodeScript script)
    : executor_(executor),
      network_(network),
      cluster_(cluster),
      options_(std::move(options)),
      script_(std::move(script)) {}

ScriptedNode::~ScriptedNode() {
  kill();
}

void ScriptedNode::start() {
  incarnation_ = cluster_.next_incarnation();
  life_ = std::make_shared<bool>(true);
  draining_ = false;
  connect();
}

void ScriptedNode::connect() {
  PeerLinkOptions link;
  link.address = options_.gateway;
  link.first_pause = std::chrono::milliseconds(20);
  PeerLinkHandlers handlers;
  handlers.make_hello = [this] { return hello(); };
  handlers.on_up = [this](Channel&, const wire::Welcome&) {
    heartbeat_ = std::make_unique<HeartbeatSender>(executor_, options_.heartbeat, [this] {
      if (script_.heartbeats && !frozen_ && link_->channel() != nullptr) {
        wire::Frame frame;
        script_.reactor_ticks += script_.reactor_ticks > 0 && script_.reactor_moves ? 1 : 0;
        *frame.mutable_heartbeat()->mutable_load() = load();
        frame.mutable_heartbeat()->set_draining(draining_);
        frame.mutable_heartbeat()->set_may_change_role(script_.may_change_role);
        link_->channel()->send(std::move(frame));
      }
    });
  };
  handlers.on_frame = [this](Channel& channel, wire::Frame frame) {
    on_frame(channel, std::move(frame));
  };
  handlers.on_down = [this](const Error&) {
    heartbeat_.reset();
    forget_all();
    if (frozen_) {
      link_->stop();
    }
  };
  handlers.on_failed = [this](const Error& error) { refused_ = error; };
  link_ = std::make_unique<PeerLink>(
      executor_, network_, seeded_random(incarnation_), link, std::move(handlers));
  link_->start();
}

void ScriptedNode::kill() {
  life_.reset();
  timers_.clear();
  heartbeat_.reset();
  if (link_) {
    link_->stop();
    // It may be the link that called us.
    executor_.post([link = std::shared_ptr<PeerLink>(std::move(link_))] {});
  }
  forget_all();
  linked_.clear();
  step_pending_ = false;
}

void ScriptedNode::forget_all() {
  sequences_.clear();
  prefilling_.clear();
  handed_.clear();
  cancelled_.clear();
  counts_.running = 0;
}

void ScriptedNode::freeze() {
  frozen_ = true;
}

void ScriptedNode::thaw() {
  frozen_ = false;
  if (!link_->is_up()) {
    connect();
  } else {
    arm_step();
  }
}

void ScriptedNode::hand_back(const Error& why) {
  std::vector<TokenEvent> events;
  const auto add = [&](const Key& key) {
    TokenEvent event;
    event.request = RequestId{key.first};
    event.attempt = Attempt{key.second};
    event.finish = FinishReason::Error;
    event.error = why;
    events.push_back(std::move(event));
  };
  for (const auto& [key, sequence] : sequences_) {
    add(key);
  }
  for (const auto& [key, wanted] : prefilling_) {
    add(key);
  }
  forget_all();
  send_events(std::move(events));
}

wire::Hello ScriptedNode::hello() const {
  wire::Hello hello;
  hello.set_wire_major(kWireMajor);
  hello.set_wire_minor(kWireMinor);
  hello.set_cluster_token(options_.token);
  hello.set_role(options_.role);
  hello.set_node(options_.name);
  hello.set_incarnation(incarnation_);
  hello.set_ucx_version("1.13.1");
  hello.set_control_address(options_.address.empty() ? options_.name + ".test:1"
                                                     : options_.address);
  wire::ModelIdentity& model = *hello.mutable_model();
  model.set_id(options_.model);
  model.set_weights_hash(options_.weights_hash);
  model.set_tokenizer_hash(cluster_.tokenizer_hash());
  model.set_numerics_hash(options_.numerics_hash);
  *model.mutable_layout() = to_wire(layout_of(options_));
  model.set_layout_hash(layout_of(options_).hash());
  model.set_context_length(options_.context_length);
  model.set_vocab_size(kByteVocab);
  model.set_created(1'700'000'000);
  *hello.mutable_load() = load();
  return hello;
}

wire::NodeLoad ScriptedNode::load() const {
  wire::NodeLoad load;
  load.set_reactor_ticks(script_.reactor_ticks);
  if (options_.role == "decode") {
    load.set_blocks_total(script_.blocks);
    load.set_blocks_free(script_.blocks);
    load.set_max_batch(script_.max_batch);
    load.set_running(counts_.running);
    load.set_requests_taken(counts_.taken * (1 + script_.others_take));
    load.set_local_prefill_max_tokens(script_.local_prefill_max_tokens);
  } else {
    load.set_credit_limit(script_.credits);
  }
  return load;
}

void ScriptedNode::after(std::chrono::milliseconds delay, Task task) {
  auto guarded = [life = std::weak_ptr(life_), task = std::move(task)]() mutable {
    if (!life.expired()) {
      task();
    }
  };
  if (delay.count() == 0) {
    return executor_.post(std::move(guarded));
  }
  const std::uint64_t number = next_timer_++;
  timers_[number] =
      executor_.call_after(delay, [this, number, guarded = std::move(guarded)]() mutable {
        const auto fired = timers_.extract(number);
        guarded();
      });
}

void ScriptedNode::on_frame(Channel& channel, wire::Frame frame) {
  if (script_.mute || frozen_) {
    return;
  }
  switch (frame.body_case()) {
    case wire::Frame::kArtifactRequest:
      return send_artifact(channel, frame);
    case wire::Frame::kReserve:
      return on_reserve(frame.reserve());
    case wire::Frame::kPrefill:
      return on_prefill(frame.prefill());
    case wire::Frame::kCancel:
      return cancel({frame.cancel().request(), frame.cancel().attempt()});
    case wire::Frame::kDrain:
      ++counts_.drains;
      counts_.then_role = frame.drain().then_role();
      draining_ = true;
      return hand_back(Error{ErrorCode::Draining, "scripted"});
    default:
      return;
  }
}

void ScriptedNode::send_artifact(Channel& channel, const wire::Frame& frame) {
  const std::string& bytes = cluster_.artifact();
  const std::uint64_t offset =
      std::min<std::uint64_t>(frame.artifact_request().offset(), bytes.size());
  wire::Frame reply;
  wire::ArtifactChunk& chunk = *reply.mutable_artifact_chunk();
  chunk.set_name(frame.artifact_request().name());
  chunk.set_offset(offset);
  chunk.set_total(bytes.size());
  chunk.set_data(bytes.substr(offset, kArtifactPiece));
  channel.answer(frame, std::move(reply));
}

void ScriptedNode::on_reserve(const wire::Reserve& message) {
  ++counts_.reserves;
  if (script_.on_reserve) {
    script_.on_reserve();
  }
  const auto request = from_wire(message.request());
  if (!request) {
    return;
  }
  seen_.push_back(*request);
  counts_.full_reserves += message.reserve_full() ? 1 : 0;
  if (draining_) {
    return send_error(*request, Error{ErrorCode::Draining, "scripted"}, true);
  }
  after(script_.reserve_delay, [this, request = *request, message] { reserve(request, message); });
}

void ScriptedNode::reserve(const GenerateRequest& request, const wire::Reserve& message) {
  const Key key{request.id.value, request.attempt.value};
  if (cancelled_.erase(key) > 0) {
    return;
  }
  if (script_.reserve_error) {
    return send_error(request, *script_.reserve_error, true);
  }
  if (counts_.running >= script_.max_batch) {
    return send_error(request, Error{ErrorCode::Busy, "batch is full"}, true);
  }
  ++counts_.running;
  ++counts_.taken;
  Sequence sequence;
  sequence.request = request;
  sequence.answer = answer_to(request);
  sequence.local = message.local();
  sequence.committed = message.local();
  sequence.next = static_cast<std::uint32_t>(request.output.size()) + (message.local() ? 0 : 1);
  sequences_[key] = std::move(sequence);
  if (message.local()) {
    return arm_step();
  }
  if (linked_.contains(message.prefill_incarnation())) {
    handed_[key] = message.prefill_node();
    return after(std::chrono::milliseconds(0), [this, key, request, to = message.prefill_node()] {
      ScriptedNode* node = cluster_.find(to);
      if (node != nullptr && !node->hand_on(request, options_.name) && sequences_.erase(key) > 0) {
        --counts_.running;
        send_error(request, Error{ErrorCode::PeerDead, "scripted: a stranger's request"}, false);
      }
    });
  }
  KvGrant grant;
  grant.node = options_.name;
  grant.incarnation = Incarnation{incarnation_};
  grant.lease = LeaseId{request.id.value, request.attempt.value + 1};
  grant.epoch = Epoch{1};
  grant.layout_hash = layout_of(options_).hash();
  grant.control_address = hello().control_address();
  grant.runs = {BlockRun{
      BlockId{0}, layout_of(options_).blocks_for(request.prompt.size() + request.output.size())}};
  wire::Frame reply;
  wire::Granted& granted = *reply.mutable_granted();
  *granted.mutable_grant() = to_wire(grant);
  granted.set_request(request.id.value);
  granted.set_attempt(request.attempt.value);
  if (is_up()) {
    link_->channel()->send(std::move(reply));
  }
}

void ScriptedNode::on_prefill(const wire::Prefill& message) {
  const auto request = from_wire(message.request());
  const auto grant = from_wire(message.grant());
  if (!request || !grant) {
    return;
  }
  if (ScriptedNode* decode = cluster_.find(grant->node)) {
    decode->link(incarnation_);
  }
  prefill(*request, grant->node);
}

bool ScriptedNode::hand_on(const GenerateRequest& request, const std::string& decode) {
  if (!life_ || !is_up()) {
    return false;
  }
  if (!script_.mute && !frozen_) {
    ++counts_.handed;
    prefill(request, decode);
  }
  return true;
}

void ScriptedNode::prefill(const GenerateRequest& request, const std::string& decode) {
  ++counts_.prefills;
  if (script_.die_on_prefill) {
    return kill();
  }
  if (script_.prefill_error) {
    return send_error(request, *script_.prefill_error, true);
  }
  prefilling_[Key{request.id.value, request.attempt.value}] = true;
  after(script_.prefill_delay, [this, request, decode] { first_token(request, decode); });
}

void ScriptedNode::send_error(const GenerateRequest& request, const Error& why, bool refused) {
  TokenEvent event;
  event.request = request.id;
  event.attempt = request.attempt;
  event.finish = FinishReason::Error;
  event.error = why;
  event.refused = refused;
  send_events({std::move(event)});
}

void ScriptedNode::cancel(const Key& key) {
  ++counts_.cancels;
  prefilling_.erase(key);
  if (options_.role != "decode") {
    return;
  }
  // As an Abort, behind the request that was handed on.
  if (const auto handed = handed_.extract(key)) {
    after(std::chrono::milliseconds(0), [this, key, to = handed.mapped()] {
      if (ScriptedNode* node = cluster_.find(to)) {
        node->prefilling_.erase(key);
      }
    });
  }
  const auto running = sequences_.find(key);
  if (running == sequences_.end()) {
    cancelled_.insert(key);
    return;
  }
  TokenEvent event;
  event.request = RequestId{key.first};
  event.attempt = Attempt{key.second};
  event.index = running->second.next;
  event.finish = FinishReason::Cancelled;
  event.figures.emplace();
  event.figures->node = options_.name;
  event.figures->kv_bytes_moved = 1234;
  sequences_.erase(running);
  --counts_.running;
  send_events({event});
}

void ScriptedNode::first_token(const GenerateRequest& request, const std::string& decode) {
  const Key key{request.id.value, request.attempt.value};
  if (prefilling_.erase(key) == 0) {
    return;
  }
  const std::optional<Error> error =
      script_.unreachable.contains(decode)
          ? std::optional(Error{ErrorCode::PeerDead, "scripted: the way is cut"})
          : script_.prefill_late_error;
  if (error) {
    return send_error(request, *error, false);
  }
  const auto first = static_cast<std::uint32_t>(request.output.size());
  TokenEvent event = event_of(request, answer_to(request), first, first + 1);
  event.figures.emplace();
  event.figures->node = options_.name;
  event.figures->cached_tokens = 3;
  event.figures->chunks = 2;
  event.figures->compute_us = 5000;
  const bool ended = event.finish != FinishReason::None;
  const auto tell_decode = [this, key, decode, ended] {
    if (ScriptedNode* node = cluster_.find(decode)) {
      if (ended) {
        node->abort(key.first, key.second);
      } else {
        node->commit(key.first, key.second);
      }
    }
  };
  if (script_.first_token_last) {
    tell_decode();
    // After all tokens of decode: those go out a step each.
    after(std::chrono::milliseconds(50),
          [this, event = std::move(event)] { send_events({event}); });
    return;
  }
  send_events({std::move(event)});
  if (script_.die_after_first) {
    return kill();
  }
  after(script_.transfer_delay, tell_decode);
}

void ScriptedNode::commit(std::uint64_t request, std::uint32_t attempt) {
  ++counts_.commits;
  const auto found = sequences_.find(Key{request, attempt});
  if (found == sequences_.end()) {
    return;
  }
  if (script_.commit_error) {
    TokenEvent event;
    event.request = RequestId{request};
    event.attempt = Attempt{attempt};
    event.finish = FinishReason::Error;
    event.error = script_.commit_error;
    sequences_.erase(found);
    --counts_.running;
    return send_events({event});
  }
  found->second.committed = true;
  arm_step();
}

void ScriptedNode::abort(std::uint64_t request, std::uint32_t attempt) {
  if (sequences_.erase(Key{request, attempt}) > 0) {
    --counts_.running;
  }
}

void ScriptedNode::arm_step() {
  if (step_pending_ || !life_ || frozen_) {
    return;
  }
  step_pending_ = true;
  after(script_.step, [this] {
    step_pending_ = false;
    if (!frozen_) {
      step();
    }
  });
}

void ScriptedNode::step() {
  std::vector<TokenEvent> events;
  bool more = false;
  for (auto at = sequences_.begin(); at != sequences_.end();) {
    Sequence& sequence = at->second;
    if (!sequence.committed) {
      ++at;
      continue;
    }
    if (script_.die_at && sequence.next >= *script_.die_at) {
      return kill();
    }
    TokenEvent event;
    if (script_.decode_error_at && sequence.next >= *script_.decode_error_at &&
        script_.decode_errors > 0 && (!script_.fails || script_.fails(sequence.request))) {
      event.request = sequence.request.id;
      event.attempt = sequence.request.attempt;
      event.index = sequence.next;
      event.finish = FinishReason::Error;
      event.error = script_.decode_error;
      --script_.decode_errors;
    } else {
      event = event_of(sequence.request,
                       sequence.answer,
                       sequence.next,
                       sequence.next + script_.tokens_per_event);
      sequence.next += static_cast<std::uint32_t>(event.tokens.size());
    }
    if (event.finish != FinishReason::None) {
      event.figures.emplace();
      event.figures->node = options_.name;
      event.figures->kv_bytes_moved = sequence.local ? 0 : 1234;
      event.figures->kv_transport = sequence.local ? "none" : "scripted";
      event.figures->transfer_us = 700;
      event.figures->max_batch = static_cast<std::uint32_t>(sequences_.size());
      at = sequences_.erase(at);
      --counts_.running;
    } else {
      ++at;
      more = true;
    }
    events.push_back(std::move(event));
  }
  if (!events.empty()) {
    send_events(std::move(events));
  }
  if (more) {
    arm_step();
  }
}

TokenEvent ScriptedNode::event_of(const GenerateRequest& request,
                                  const std::vector<TokenId>& answer,
                                  std::uint32_t from,
                                  std::uint32_t to) const {
  TokenEvent event;
  event.request = request.id;
  event.attempt = request.attempt;
  event.index = from;
  for (std::size_t i = 1; from == 0 && request.prompt_logprobs >= 0 && i < request.prompt.size();
       ++i) {
    event.prompt_logprobs.push_back({request.prompt[i], -0.5F});
    std::vector<TokenLogprob>& top = event.prompt_top_logprobs.emplace_back();
    for (std::int32_t k = 0; k < request.prompt_logprobs; ++k) {
      top.push_back({request.prompt[i] + k, -0.5F - static_cast<float>(k)});
    }
  }
  for (std::uint32_t i = from; i < to && event.finish == FinishReason::None; ++i) {
    const bool at_end = i >= answer.size();
    const bool stops = at_end && !request.stop_tokens.empty();
    event.tokens.push_back(stops ? kByteEnd : at_end ? static_cast<TokenId>('.') : answer[i]);
    if (request.sampling.num_logprobs >= 0) {
      event.logprobs.push_back({event.tokens.back(), -0.25F});
      std::vector<TokenLogprob> top;
      for (std::int32_t k = 0; k < request.sampling.num_logprobs; ++k) {
        top.push_back({event.tokens.back() + k, -0.25F - static_cast<float>(k)});
      }
      event.top_logprobs.push_back(std::move(top));
    }
    event.finish = stops                         ? FinishReason::Stop
                   : i + 1 >= request.max_tokens ? FinishReason::Length
                                                 : FinishReason::None;
  }
  return event;
}

void ScriptedNode::send_events(std::vector<TokenEvent> events) {
  if (!is_up() || frozen_) {
    return;
  }
  for (int time = 0; time < (script_.repeat_events ? 2 : 1); ++time) {
    wire::Frame frame;
    for (const TokenEvent& event : events) {
      *frame.mutable_tokens()->add_events() = to_wire(event);
    }
    link_->channel()->send(std::move(frame));
  }
}

std::vector<TokenId> ScriptedNode::answer_to(const GenerateRequest& request) const {
  return script_.answer ? script_.answer(request) : byte_tokens("Hello world");
}

ScriptedCluster::ScriptedCluster(Executor& executor, Network& network)
    : executor_(executor), network_(network) {
  const engine::TokenizerSpec spec = byte_tokenizer_spec();
  artifact_ = spec.serialize();
  tokenizer_hash_ = spec.hash();
}

ScriptedCluster::~ScriptedCluster() = default;

ScriptedNode& ScriptedCluster::add(ScriptedNodeOptions options, NodeScript script) {
  const std::string name = options.name;
  auto node = std::make_unique<ScriptedNode>(
      executor_, network_, *this, std::move(options), std::move(script));
  node->start();
  return *(nodes_[name] = std::move(node));
}

ScriptedNode* ScriptedCluster::find(const std::string& name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : found->second.get();
}

}  // namespace baton::testing
