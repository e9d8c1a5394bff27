#include "bench/gateway/scripted_nodes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bench/gateway/awake.h"
#include "common/base/random.h"
#include "common/exec/asio_executor.h"
#include "common/obs/log.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/hello_check.h"
#include "common/rpc/peer_link.h"
#include "common/rpc/tcp_network.h"
#include "common/types/token_event.h"
#include "common/wire/convert.h"
#include "engine/model/model_file.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::bench {
namespace {

constexpr std::chrono::milliseconds kTick{10};  // paced tokens leave in frames, one a tick
constexpr std::chrono::milliseconds kHeartbeat{250};
constexpr std::size_t kArtifactPiece = std::size_t{512} << 10;
constexpr std::size_t kMaxQueued = std::size_t{128} << 10;  // a gateway that lags is waited for
constexpr std::size_t kMaxEvents = 512;                     // of a frame
constexpr std::uint32_t kContext = 1U << 20U;
constexpr std::uint32_t kBlocks = 1U << 24U;

KvLayout layout() {
  KvLayout layout;
  layout.layers = 2;
  layout.kv_heads = 1;
  layout.head_dim = 64;
  return layout;
}

// What both nodes serve.
struct ServedText {
  std::string artifact;  // serialized tokenizer
  std::uint64_t hash = 0;
  std::uint32_t vocab = 0;
  TokenId word = 0;
};

Result<ServedText> read_text(const std::string& model) {
  BATON_ASSIGN(const auto file, engine::ModelFile::open(model));
  BATON_ASSIGN(engine::TokenizerSpec spec, file->tokenizer_spec());
  ServedText text;
  text.artifact = spec.serialize();
  text.hash = spec.hash();
  text.vocab = static_cast<std::uint32_t>(spec.tokens.size());
  BATON_ASSIGN(const auto tokenizer, engine::Tokenizer::create(std::move(spec)));
  const auto ids = tokenizer->encode(kAnswerWord, false, false);
  if (ids.size() != 1) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("'{}' is no token of {}; take another model", kAnswerWord, model));
  }
  text.word = ids.front();
  return text;
}

struct Key {
  std::uint64_t request = 0;
  std::uint32_t attempt = 0;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const { return key.request ^ key.attempt; }
};

template <class Message>
Key key_of(const Message& message) {
  return Key{message.id(), message.attempt()};
}

// One node's link: Hello, heartbeats, tokenizer; the rest goes to `on_frame`.
class Node {
 public:
  Node(AsioExecutor& executor,
       Network& network,
       const ScriptedNodesOptions& options,
       const ServedText& text,
       const std::string& role,
       std::function<void(Channel&, wire::Frame)> on_frame,
       std::function<std::uint32_t()> running)
      : options_(options), text_(text), role_(role), running_(std::move(running)) {
    PeerLinkHandlers handlers;
    handlers.make_hello = [this] { return hello(); };
    handlers.on_up = [this, &executor](Channel&, const wire::Welcome&) {
      beats_ = std::make_unique<HeartbeatSender>(executor, kHeartbeat, [this] { beat(); });
    };
    handlers.on_frame = [this, on_frame = std::move(on_frame)](Channel& channel,
                                                               wire::Frame frame) {
      if (frame.has_artifact_request()) {
        send_artifact(channel, frame);
      } else {
        on_frame(channel, std::move(frame));
      }
    };
    handlers.on_down = [this](const Error&) { beats_.reset(); };
    handlers.on_failed = [](const Error& error) {
      fmt::print(stderr, "baton-gateway-probe: {}\n", error.message);
    };
    link_ = std::make_unique<PeerLink>(
        executor,
        network,
        system_random(),
        PeerLinkOptions{.address = options.gateway, .first_pause = std::chrono::milliseconds(10)},
        std::move(handlers));
    link_->start();
  }

  Channel* channel() const { return link_->channel(); }

 private:
  wire::NodeLoad load() const {
    wire::NodeLoad load;
    if (role_ == "decode") {
      load.set_blocks_total(kBlocks);
      load.set_blocks_free(kBlocks);
      load.set_max_batch(options_.max_batch);
      load.set_running(running_());
    } else {
      load.set_credit_limit(options_.credits);
    }
    return load;
  }
  wire::Hello hello() const {
    wire::Hello hello;
    hello.set_wire_major(kWireMajor);
    hello.set_wire_minor(kWireMinor);
    hello.set_cluster_token(options_.token);
    hello.set_role(role_);
    hello.set_node(role_ + "-0");
    hello.set_incarnation(incarnation_);
    hello.set_ucx_version("none");
    if (role_ == "decode") {
      hello.set_control_address("127.0.0.1:1");  // nobody dials it: blocks are never sent
    }
    wire::ModelIdentity& model = *hello.mutable_model();
    model.set_id("bench");
    model.set_weights_hash(1);
    model.set_tokenizer_hash(text_.hash);
    model.set_numerics_hash(1);
    *model.mutable_layout() = to_wire(layout());
    model.set_layout_hash(layout().hash());
    model.set_context_length(kContext);
    model.set_vocab_size(text_.vocab);
    model.set_created(1);
    *hello.mutable_load() = load();
    return hello;
  }
  void beat() {
    if (link_->channel() != nullptr) {
      wire::Frame frame;
      *frame.mutable_heartbeat()->mutable_load() = load();
      link_->channel()->send(std::move(frame));
    }
  }
  void send_artifact(Channel& channel, const wire::Frame& frame) const {
    const auto offset =
        std::min<std::uint64_t>(frame.artifact_request().offset(), text_.artifact.size());
    wire::Frame reply;
    wire::ArtifactChunk& chunk = *reply.mutable_artifact_chunk();
    chunk.set_name(frame.artifact_request().name());
    chunk.set_offset(offset);
    chunk.set_total(text_.artifact.size());
    chunk.set_data(text_.artifact.substr(offset, kArtifactPiece));
    channel.answer(frame, std::move(reply));
  }

  const ScriptedNodesOptions& options_;
  const ServedText& text_;
  const std::string role_;
  const std::uint64_t incarnation_ = system_random()();
  const std::function<std::uint32_t()> running_;
  std::unique_ptr<HeartbeatSender> beats_;
  std::unique_ptr<PeerLink> link_;
};

// The two nodes and what they know together. Lives on the control thread.
class Pair {
 public:
  Pair(AsioExecutor& executor,
       Network& network,
       const ScriptedNodesOptions& options,
       const ServedText& text)
      : executor_(executor),
        options_(options),
        text_(text),
        slots_(std::max<std::size_t>(1, static_cast<std::size_t>(options.token_gap / kTick))),
        prefill_(
            executor,
            network,
            options,
            text,
            "prefill",
            [](Channel&, const wire::Frame&) {},  // a Cancel reaches the decode node, too
            [] { return 0U; }),
        decode_(
            executor,
            network,
            options,
            text,
            "decode",
            [this](Channel& channel, wire::Frame frame) { on_decode(channel, frame); },
            [this] { return static_cast<std::uint32_t>(sequences_.size()); }) {
    if (is_paced()) {
      arm_tick();
    }
  }

 private:
  struct Sequence {
    std::uint32_t next = 0;  // index of its next token
    std::uint32_t most = 0;  // max_tokens
  };

  bool is_paced() const { return options_.token_gap.count() > 0; }

  void on_decode(Channel& channel, const wire::Frame& frame) {
    if (frame.has_cancel()) {
      sequences_.erase(Key{frame.cancel().request(), frame.cancel().attempt()});
    }
    if (!frame.has_reserve()) {
      return;
    }
    const wire::GenerateRequest& request = frame.reserve().request();
    if (sequences_.size() >= options_.max_batch) {
      wire::Frame reply;
      wire::TokenEvent& event = *reply.mutable_tokens()->add_events();
      event.set_request(request.id());
      event.set_attempt(request.attempt());
      event.set_finish(static_cast<std::uint32_t>(FinishReason::Error));
      event.set_error_code(std::string(to_string(ErrorCode::Busy)));
      event.set_error_message("the batch is full");
      event.set_refused(true);
      return channel.send(std::move(reply));
    }
    const Key key = key_of(request);
    sequences_[key] = {static_cast<std::uint32_t>(request.output_size()), request.max_tokens()};
    hand_on(key);
  }

  // The prefill node has the request: both are this process.
  void hand_on(const Key& key) {
    if (options_.prefill.count() == 0) {
      return first_token(key);
    }
    const std::uint64_t number = next_timer_++;
    timers_[number] = executor_.call_after(options_.prefill, [this, number, key] {
      const auto fired = timers_.extract(number);
      first_token(key);
    });
  }

  void first_token(const Key& key) {
    const auto found = sequences_.find(key);
    if (found == sequences_.end() || prefill_.channel() == nullptr) {
      return;
    }
    wire::Frame frame;
    const bool ended = add_token(*frame.mutable_tokens(), *found, "prefill-0");
    prefill_.channel()->send(std::move(frame));
    if (ended) {
      sequences_.erase(found);
    } else if (is_paced()) {
      slots_[slot_].push_back(key);  // one gap from now
    } else {
      flood_.push_back(key);
      arm_flood();
    }
  }

  // Adds the next token of a sequence; true: it was the last.
  bool add_token(wire::TokenFrame& frame,
                 std::pair<const Key, Sequence>& entry,
                 const char* node) const {
    Sequence& sequence = entry.second;
    wire::TokenEvent& event = *frame.add_events();
    event.set_request(entry.first.request);
    event.set_attempt(entry.first.attempt);
    event.set_index(sequence.next++);
    event.add_tokens(text_.word);
    if (sequence.next < sequence.most) {
      return false;
    }
    event.set_finish(static_cast<std::uint32_t>(FinishReason::Length));
    event.mutable_figures()->set_node(node);
    return true;
  }

  // A token for each of these sequences; gives those that go on.
  template <class Keys>
  std::vector<Key> step(const Keys& keys) {
    std::vector<Key> more;
    more.reserve(keys.size());
    wire::Frame frame;
    for (const Key& key : keys) {
      const auto found = sequences_.find(key);
      if (found == sequences_.end()) {
        continue;
      }
      if (add_token(*frame.mutable_tokens(), *found, "decode-0")) {
        sequences_.erase(found);
      } else {
        more.push_back(key);
      }
    }
    if (frame.tokens().events_size() > 0 && decode_.channel() != nullptr) {
      decode_.channel()->send(std::move(frame));
    }
    return more;
  }

  void arm_tick() {
    tick_ = executor_.call_after(kTick, [this] {
      // Late ticks are made up for: the pace is that of the clock.
      const auto due = (executor_.now() - began_) / kTick;
      for (; ticked_ < due; ++ticked_) {
        slot_ = (slot_ + 1) % slots_.size();
        slots_[slot_] = step(std::exchange(slots_[slot_], {}));
      }
      arm_tick();
    });
  }

  void arm_flood() {
    if (flood_.empty() || flooding_) {
      return;
    }
    flooding_ = true;
    const bool lags =
        decode_.channel() != nullptr && decode_.channel()->queued_bytes() > kMaxQueued;
    if (lags) {
      tick_ = executor_.call_after(std::chrono::milliseconds(1), [this] { flood(); });
    } else {
      executor_.post([this] { flood(); });
    }
  }
  void flood() {
    flooding_ = false;
    std::vector<Key> turn;
    while (!flood_.empty() && turn.size() < kMaxEvents) {
      turn.push_back(flood_.front());
      flood_.pop_front();
    }
    for (const Key& key : step(turn)) {
      flood_.push_back(key);
    }
    arm_flood();
  }

  AsioExecutor& executor_;
  const ScriptedNodesOptions& options_;
  const ServedText& text_;
  std::unordered_map<Key, Sequence, KeyHash> sequences_;  // granted and not ended
  std::vector<std::vector<Key>> slots_;                   // paced: those due at a tick
  std::size_t slot_ = 0;
  const TimePoint began_ = std::chrono::steady_clock::now();
  std::int64_t ticked_ = 0;
  std::deque<Key> flood_;  // not paced: in turns
  bool flooding_ = false;
  TimerHandle tick_;
  std::map<std::uint64_t, TimerHandle> timers_;  // of prefills
  std::uint64_t next_timer_ = 0;
  Node prefill_;
  Node decode_;
};

}  // namespace

Status run_scripted_nodes(const ScriptedNodesOptions& options) {
  BATON_ASSIGN(const Logger log, Logger::create({"warn", "text", "nodes"}));
  BATON_ASSIGN(const ServedText text, read_text(options.model));
  ControlThread thread("nodes");
  TcpNetwork network(thread.executor(), log);
  std::unique_ptr<Pair> pair;
  thread.run_and_wait(
      [&] { pair = std::make_unique<Pair>(thread.executor(), network, options, text); });
  thread.executor().post([&] { keep_awake(thread.executor()); });
  while (true) {
    ::pause();  // until a signal ends the process
  }
}

}  // namespace baton::bench
