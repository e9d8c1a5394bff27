// Prefill and decode nodes that speak the control protocol without an engine: what they answer, how
// long it takes and how they fail is a script. The gateway under test sees real frames.
//
// Owner: a test. Thread: the executor's strand. Failure: scripted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/exec/executor.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/network.h"
#include "common/rpc/peer_link.h"
#include "common/types/request.h"
#include "common/types/token_event.h"

namespace baton::testing {

// What a node does. May be changed while it runs, on its strand.
struct NodeScript {
  // The answer to a prompt, without stop token; absent: "Hello world".
  std::function<std::vector<TokenId>(const GenerateRequest&)> answer;
  std::chrono::milliseconds reserve_delay{0};
  std::chrono::milliseconds prefill_delay{0};   // Prefill to first token
  std::chrono::milliseconds transfer_delay{0};  // first token to Commit
  std::chrono::milliseconds step{0};            // between two tokens of decode
  std::uint32_t max_batch = 64;                 // more sequences are refused as Busy
  std::uint32_t credits = 16;
  std::uint32_t local_prefill_max_tokens = 0;
  std::uint32_t blocks = 4096;
  std::optional<Error> reserve_error;
  std::optional<Error> prefill_error;                   // it takes none
  std::optional<Error> prefill_late_error;              // as an event, instead of the first token
  std::set<std::string> unreachable;                    // decode nodes: PeerDead instead of it
  std::optional<std::uint32_t> decode_error_at;         // an error event at this index …
  std::function<bool(const GenerateRequest&)> fails;    // … of these requests; absent: of all
  Error decode_error{ErrorCode::Internal, "scripted"};  // … and this one
  std::uint32_t decode_errors = 1'000'000;              // … so many times
  std::optional<Error> commit_error;                    // as an event, when Commit comes
  std::optional<std::uint32_t> die_at;                  // the connection breaks at this index
  bool die_on_prefill = false;                          // the connection breaks at a Prefill
  bool die_after_first = false;      // it breaks after the first token, before Commit
  std::uint64_t reactor_ticks = 0;   // of the next heartbeat; 0: no data plane
  bool reactor_moves = true;         // each heartbeat adds one, unless it is 0
  std::function<void()> on_reserve;  // before a Reserve is looked at
  std::uint64_t others_take = 0;     // requests of other gateways for each of this one
  bool mute = false;                 // takes everything, answers nothing
  bool heartbeats = true;
  bool repeat_events = false;     // each event twice
  bool first_token_last = false;  // the first token after decode's tokens
  std::uint32_t tokens_per_event = 1;
  bool may_change_role = false;
};

struct NodeCounts {
  std::uint64_t taken = 0;  // requests granted
  std::uint32_t reserves = 0;
  std::uint32_t prefills = 0;
  std::uint32_t handed = 0;  // of these, by decode nodes
  std::uint32_t cancels = 0;
  std::uint32_t commits = 0;
  std::uint32_t full_reserves = 0;  // that asked for all of max_tokens
  std::uint32_t drains = 0;
  std::uint32_t running = 0;  // grants not ended
  std::string then_role;      // of the last drain
};

struct ScriptedNodeOptions {
  std::string name;
  std::string role;  // prefill, decode
  std::string gateway;
  std::string token;
  std::string model = "scripted";
  std::uint64_t weights_hash = 1;
  std::uint64_t numerics_hash = 2;
  std::uint32_t layers = 2;
  std::uint32_t context_length = 4096;
  std::chrono::milliseconds heartbeat{100};
  std::string address = {};  // where others would dial it; empty: one of its own
};

class ScriptedCluster;

class ScriptedNode {
 public:
  ScriptedNode(Executor& executor,
               Network& network,
               ScriptedCluster& cluster,
               ScriptedNodeOptions options,
               NodeScript script);
  ~ScriptedNode();

  void start();
  // As kill -9: the connection is gone and with it all it knew.
  void kill();
  // As SIGSTOP and SIGCONT: stopped, it takes and says nothing, and a connection that its peer
  // closes is dialled again only afterwards, in the same life.
  void freeze();
  void thaw();
  bool is_up() const { return link_ && link_->is_up(); }
  NodeScript& script() { return script_; }
  const NodeCounts& counts() const { return counts_; }
  const ScriptedNodeOptions& options() const { return options_; }
  const std::optional<Error>& refused() const { return refused_; }
  // The last requests that came with Reserve, newest last.
  const std::vector<GenerateRequest>& seen() const { return seen_; }

  // From the prefill node of the same cluster.
  void commit(std::uint64_t request, std::uint32_t attempt);
  void abort(std::uint64_t request, std::uint32_t attempt);
  // This decode node has a connection from that life of a prefill node: it hands requests on.
  void link(std::uint64_t prefill_incarnation) { linked_.insert(prefill_incarnation); }
  // From the decode node of the same cluster. False: its gateway could not be told anything.
  bool hand_on(const GenerateRequest& request, const std::string& decode);

 private:
  struct Sequence {
    GenerateRequest request;
    std::vector<TokenId> answer;
    std::uint32_t next = 1;  // index of the next token decode sends
    bool committed = false;
    bool local = false;
  };
  using Key = std::pair<std::uint64_t, std::uint32_t>;  // request, attempt

  wire::Hello hello() const;
  wire::NodeLoad load() const;
  void on_frame(Channel& channel, wire::Frame frame);
  void on_reserve(const wire::Reserve& message);
  void reserve(const GenerateRequest& request, const wire::Reserve& message);
  void on_prefill(const wire::Prefill& message);
  void prefill(const GenerateRequest& request, const std::string& decode);
  void cancel(const Key& key);
  void forget_all();
  void send_error(const GenerateRequest& request, const Error& why, bool refused);
  void send_artifact(Channel& channel, const wire::Frame& frame);
  void first_token(const GenerateRequest& request, const std::string& decode);
  void connect();
  // Ends every sequence with this error.
  void hand_back(const Error& why);
  void arm_step();
  void step();
  // The event of tokens [from, to) of an answer; with its end when it is reached.
  TokenEvent event_of(const GenerateRequest& request,
                      const std::vector<TokenId>& answer,
                      std::uint32_t from,
                      std::uint32_t to) const;
  void send_events(std::vector<TokenEvent> events);
  void after(std::chrono::milliseconds delay, Task task);
  std::vector<TokenId> answer_to(const GenerateRequest& request) const;

  Executor& executor_;
  Network& network_;
  ScriptedCluster& cluster_;
  const ScriptedNodeOptions options_;
  NodeScript script_;
  NodeCounts counts_;
  std::uint64_t incarnation_ = 0;
  std::unique_ptr<PeerLink> link_;
  std::unique_ptr<HeartbeatSender> heartbeat_;
  std::optional<Error> refused_;
  std::map<Key, Sequence> sequences_;  // of a decode node
  std::map<Key, bool> prefilling_;     // of a prefill node; false: cancelled
  std::map<Key, std::string> handed_;  // of a decode node: to whom
  std::set<Key> cancelled_;            // before their Reserve was looked at
  std::set<std::uint64_t> linked_;     // of a decode node: lives of prefill nodes
  std::vector<GenerateRequest> seen_;
  bool step_pending_ = false;
  bool draining_ = false;
  bool frozen_ = false;
  std::map<std::uint64_t, TimerHandle> timers_;  // of tasks that wait
  std::uint64_t next_timer_ = 0;
  std::shared_ptr<bool> life_;  // of posted tasks: a killed node does nothing more
};

// The nodes of one test; carries Commit from prefill to decode.
class ScriptedCluster {
 public:
  ScriptedCluster(Executor& executor, Network& network);
  ~ScriptedCluster();

  ScriptedNode& add(ScriptedNodeOptions options, NodeScript script = {});
  ScriptedNode& node(const std::string& name) { return *nodes_.at(name); }
  ScriptedNode* find(const std::string& name);
  void remove(const std::string& name) { nodes_.erase(name); }
  const std::string& artifact() const { return artifact_; }
  std::uint64_t tokenizer_hash() const { return tokenizer_hash_; }
  std::uint64_t next_incarnation() { return next_incarnation_++; }

 private:
  Executor& executor_;
  Network& network_;
  std::string artifact_;  // serialized tokenizer
  std::uint64_t tokenizer_hash_ = 0;
  std::uint64_t next_incarnation_ = 1;
  std::map<std::string, std::unique_ptr<ScriptedNode>> nodes_;
};

}  // namespace baton::testing
