// Prefill and decode nodes in one process, with a scripted model, control connections in memory and
// data planes that the test chooses; and a gateway of few lines that reserves, prefills and
// collects tokens. Everything runs on one manual executor, so a test decides between which two
// tasks something happens.
//
// Owner: a test. Thread: the test's. Failure: what cannot be set up ends the process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/exec/asio_executor.h"
#include "common/exec/manual_executor.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"
#include "decode_node/decode_node.h"
#include "engine/kv/kv_memory.h"
#include "engine/speculation/draft_model.h"
#include "node/role.h"
#include "prefill_node/prefill_node.h"
#include "tests/support/gated_executor.h"
#include "tests/support/memory_channel.h"
#include "tests/support/scripted_runner.h"
#include "transfer/transport.h"

namespace baton::testing {

// A configuration of defaults alone. Out of line: GCC 12 takes the members of one that it sees made
// and dropped for uninitialised.
ClusterConfig default_config();

// Makes the data plane of the process `name`.
using TransportMaker =
    std::function<std::unique_ptr<transfer::Transport>(const std::string& name, KvArenaView)>;

// One node with everything it stands on.
class MiniNode {
 public:
  MiniNode(ManualExecutor& executor,
           MemoryFabric& fabric,
           const TransportMaker& make_transport,
           const ScriptedOptions& model,
           const ClusterConfig& config,
           const NodeEntry& entry,
           const std::string& role,
           std::uint32_t num_blocks,
           std::uint64_t incarnation,
           bool has_engine_thread);
  MiniNode(const MiniNode&) = delete;
  MiniNode& operator=(const MiniNode&) = delete;
  ~MiniNode();

  engine::KvMemory& kv() { return *kv_; }
  engine::FileTier& tier() { return *tier_; }  // where the configuration has one, on prefill nodes
  ScriptedRunner& runner() { return runner_; }
  // That it was to end for; empty: none.
  const std::string& next_role() const { return next_role_; }
  transfer::Transport& transport() { return *transport_; }
  node::Role& role() { return *role_; }
  decode_node::DecodeNode& decode() { return dynamic_cast<decode_node::DecodeNode&>(*role_); }
  prefill_node::PrefillNode& prefill() { return dynamic_cast<prefill_node::PrefillNode&>(*role_); }
  // Nothing is held but what the prefix index keeps; the books balance.
  bool is_clean() const;
  std::string describe_blocks() const;
  GatedExecutor& gate() { return gate_; }
  // A counter's or gauge's value as the admin server would show it; 0 when there is none.
  double metric(const std::string& name_and_labels) const;

 private:
  std::string next_role_;
  Logger log_ = Logger::silent();
  Metrics metrics_;
  node::Artifacts artifacts_;
  const ClusterConfig config_;
  ScriptedRunner runner_;
  std::unique_ptr<ScriptedRunner> draft_runner_;  // where speculation is by a draft model
  std::unique_ptr<engine::DraftModel> draft_;
  std::unique_ptr<engine::SpeculativeRunner> speculative_;
  std::unique_ptr<engine::KvMemory> kv_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<Network> network_;
  GatedExecutor gate_;
  std::unique_ptr<ControlThread> engine_;  // null: steps run on the manual executor
  const std::string tokenizer_;            // of a token a byte
  node::Grammars grammars_;                // compile and make masks on the manual executor
  std::unique_ptr<ControlThread> copier_;  // the file tier's, where steps have a thread
  std::unique_ptr<engine::FileTier> tier_;
  std::unique_ptr<node::Role> role_;
};

// What became of one request.
struct Answer {
  std::map<std::uint32_t, TokenId> tokens;  // by index in the output
  FinishReason finish = FinishReason::None;
  std::optional<Error> error;
  bool refused = false;                           // by a node that had not begun
  std::map<std::string, RequestFigures> figures;  // by node
  bool repeated = false;                          // an index came twice
  std::vector<TokenLogprob> prompt_logprobs;
  std::vector<std::vector<TokenLogprob>> prompt_top_logprobs;

  bool is_over() const { return finish != FinishReason::None || error.has_value(); }
  std::vector<TokenId> output() const;
};

class MiniCluster {
 public:
  MiniCluster(TransportMaker make_transport,
              ScriptedOptions model,
              ClusterConfig config = default_config());
  MiniCluster(const MiniCluster&) = delete;
  MiniCluster& operator=(const MiniCluster&) = delete;
  ~MiniCluster();

  // Nodes added from now on compute on a thread of their own, as real ones do.
  void use_engine_threads() { has_engine_threads_ = true; }
  // Nodes added from now on have this model: the same in another block size or order.
  void use_model(const ScriptedOptions& model) { model_ = model; }
  // Starts a node and waits until the gateway knows it.
  MiniNode& add(const std::string& role, const std::string& name, std::uint32_t num_blocks = 64);
  MiniNode& node(const std::string& name) { return *nodes_.at(name); }
  // As `kill -9`: connections break, nothing of it runs any more.
  void kill(const std::string& name);
  // As SIGSTOP and SIGCONT, but for its data plane, which is the test's.
  void set_stopped(const std::string& name, bool is_stopped);

  // Reserve on `decode`, which hands it on to `prefill`, or gives the grant for a Prefill; with an
  // empty `prefill`, a local one.
  void start(const GenerateRequest& request, const std::string& prefill, const std::string& decode);
  // Only the Reserve, for no prefill node; runs until there is a grant.
  const KvGrant& reserve(const GenerateRequest& request, const std::string& decode);
  // Only the Prefill, under a grant that the test has or makes.
  void prefill(const GenerateRequest& request, const std::string& node, const KvGrant& grant);
  void start_whole(const GenerateRequest& request,
                   const std::string& prefill,
                   const std::string& decode);  // with Reserve.reserve_full
  void cancel(const GenerateRequest& request);
  // The gateway has forgotten the request: it asks nobody for more of it.
  void forget(const GenerateRequest& request) { cancelled_.insert(request.id); }
  // The gateway sends a frame of its own.
  void send(const std::string& node, wire::Frame frame);
  const std::optional<wire::Heartbeat>& last_beat(const std::string& node) { return beats_[node]; }
  // What its heartbeats have told of the prefix cache, over all its connections.
  const std::vector<wire::KvEvents>& kv_events(const std::string& node) { return kv_events_[node]; }
  const Answer& answer(const GenerateRequest& request) { return answers_[request.id]; }
  // Runs until the request is over.
  const Answer& finish(const GenerateRequest& request);
  Channel* channel(const std::string& node);  // the gateway's to that node
  void close_gateway(const std::string& node);

  // Runs tasks until `done`, also waiting for data planes with threads of their own.
  bool run_until(const std::function<bool()>& done);
  // Runs what is due and lets the data planes come to rest.
  void settle();
  bool all_clean() const;

  ManualExecutor& executor() { return executor_; }
  MemoryFabric& fabric() { return fabric_; }
  // What becomes of control messages from now on.
  void set_control_hook(FrameHook hook) { control_hook_ = std::move(hook); }
  const wire::Hello& hello(const std::string& node) const { return hellos_.at(node); }
  const KvGrant& grant(const GenerateRequest& request) const { return grants_.at(request.id); }
  // Grants that came here, and requests that decode nodes handed on.
  std::size_t num_granted() const { return num_granted_; }
  std::size_t num_handed() const { return num_handed_; }

 private:
  void accept(std::unique_ptr<Channel> channel, const wire::Hello& hello);
  void on_frame(const std::string& node, const wire::Frame& frame);
  void on_event(const std::string& node, const TokenEvent& event);
  void on_granted(const wire::Granted& granted);
  void send_reserve(const GenerateRequest& request,
                    const std::string& prefill,
                    const std::string& decode,
                    bool whole);

  const TransportMaker make_transport_;
  ScriptedOptions model_;
  ClusterConfig config_;
  ManualExecutor executor_;
  MemoryFabric fabric_{executor_};
  FrameHook control_hook_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Listener> listener_;
  std::map<std::string, std::unique_ptr<Channel>> channels_;  // by node
  std::map<std::string, wire::Hello> hellos_;
  std::map<std::string, std::unique_ptr<MiniNode>> nodes_;
  std::vector<std::unique_ptr<MiniNode>> dead_;
  std::map<std::string, std::optional<wire::Heartbeat>> beats_;
  std::map<std::string, std::vector<wire::KvEvents>> kv_events_;
  std::map<RequestId, Answer> answers_;
  std::map<RequestId, KvGrant> grants_;
  std::map<RequestId, std::pair<GenerateRequest, std::string>> asked_;  // and the prefill node
  std::size_t num_granted_ = 0;
  std::size_t num_handed_ = 0;
  std::set<RequestId> cancelled_;
  std::uint64_t next_incarnation_ = 100;
  bool has_engine_threads_ = false;
};

// A request with a prompt that depends on `seed` alone.
GenerateRequest make_request(std::uint64_t id,
                             std::size_t prompt,
                             std::uint32_t max_tokens,
                             std::uint64_t seed = 1);

}  // namespace baton::testing
