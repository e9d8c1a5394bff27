// Fetches the tokenizer of each model from one of its nodes, in pieces over the control connection,
// builds it on a worker and keeps it for as long as the process lives: nodes may come and go.
//
// Owner: the composition root. Thread: the control strand; building runs on the pool. Failure: a
// broken or lost transfer is tried again with the next node; what a node sends is foreign and
// bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "gateway/api/prompt_cost.h"
#include "gateway/cluster/membership.h"
#include "gateway/cluster/served_models.h"
#include "gateway/work_pool.h"

namespace baton::gateway {

class ArtifactFetcher {
 public:
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{64} << 20;

  // `on_ready`: something new can be found.
  ArtifactFetcher(Executor& executor,
                  Membership& membership,
                  WorkPool& pool,
                  const Logger& log,
                  std::function<void()> on_ready,
                  PromptCost cost = {});
  ArtifactFetcher(const ArtifactFetcher&) = delete;
  ArtifactFetcher& operator=(const ArtifactFetcher&) = delete;
  ~ArtifactFetcher();

  // Begins to fetch what a node's model needs and is not here yet.
  void need(Node& node);
  void on_node_down(const Node& node);
  // Null until fetched.
  std::shared_ptr<const ModelArtifacts> find(std::uint64_t tokenizer_hash) const;

 private:
  struct Fetch {
    NodeHandle node{};
    std::string bytes;
    bool building = false;
  };
  void ask(std::uint64_t hash);
  void on_chunk(std::uint64_t hash, NodeHandle node, Result<wire::Frame> answer);
  void build(std::uint64_t hash);
  void on_built(std::uint64_t hash, Result<std::shared_ptr<const ModelArtifacts>> built);
  // Gives a failed fetch to another node, after a pause.
  void retry(std::uint64_t hash, const Error& why);

  Executor& executor_;
  Membership& membership_;
  WorkPool& pool_;
  const Logger& log_;
  const std::function<void()> on_ready_;
  const PromptCost cost_;
  std::map<std::uint64_t, Fetch> fetches_;  // in work, by tokenizer hash
  std::map<std::uint64_t, std::shared_ptr<const ModelArtifacts>> ready_;
  std::map<std::uint64_t, TimerHandle> pauses_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// Checks the hash and builds tokenizer and template from the bytes of a TokenizerSpec.
Result<std::shared_ptr<const ModelArtifacts>> build_artifacts(std::string_view bytes,
                                                              std::uint64_t expected_hash,
                                                              const PromptCost& cost = {});

}  // namespace baton::gateway
