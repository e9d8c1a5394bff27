// What a node loads at start: model file, KV memory, data plane, backend, runner, tokenizer bytes;
// in this order, so that what fails cheaply fails first, and so that the data plane is made before
// any thread.
//
// Owner: the host. Thread: main, while nothing else runs. Failure: each step's own sentence.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/config/cluster_config.h"
#include "common/obs/log.h"
#include "engine/kv/arena_populator.h"
#include "engine/kv/kv_memory.h"
#include "engine/model/model.h"
#include "engine/model/model_file.h"
#include "engine/speculation/draft_model.h"
#include "kernels/ops.h"
#include "node/artifacts.h"
#include "transfer/transport.h"

namespace baton::node {

class ModelHost {
 public:
  // `max_step_tokens`: rows of the largest step of the role. `may_draft`: with the draft model, if
  // there is one. `log`: only while it loads.
  static Result<std::unique_ptr<ModelHost>> load(const ClusterConfig& config,
                                                 const EngineSection& engine,
                                                 std::uint32_t max_step_tokens,
                                                 bool may_draft,
                                                 const Logger& log);

  engine::KvMemory& kv() { return *kv_; }
  transfer::Transport& transport() { return *transport_; }
  engine::ModelRunner& runner() { return speculative_ ? *speculative_ : *runner_; }
  const Artifacts& artifacts() const { return artifacts_; }
  const wire::ModelIdentity& identity() const { return identity_; }
  // What transfer.digest comes to on this machine.
  transfer::DigestMode digest() const { return digest_; }
  std::string describe() const;
  // Of how the model file is read, for the log.
  std::vector<std::string> notes() const { return file_->notes(); }

 private:
  ModelHost() = default;
  Status load_draft(const ClusterConfig& config, std::uint64_t tokenizer_hash);

  std::string path_;
  std::unique_ptr<const engine::ModelFile> file_;
  std::unique_ptr<engine::KvMemory> kv_;
  std::unique_ptr<transfer::Transport> transport_;           // registers the arena: goes before it
  std::vector<std::unique_ptr<kernels::Backend>> backends_;  // one a rank
  std::unique_ptr<engine::ModelRunner> runner_;
  std::unique_ptr<const engine::ModelFile> draft_file_;
  std::unique_ptr<engine::ModelRunner> draft_runner_;
  std::unique_ptr<engine::DraftModel> draft_;
  std::unique_ptr<engine::ModelRunner> speculative_;  // runner_ with draft_; null: no draft model
  std::unique_ptr<engine::ArenaPopulator> populator_;
  Artifacts artifacts_;
  wire::ModelIdentity identity_;
  transfer::DigestMode digest_ = transfer::DigestMode::Off;
};

}  // namespace baton::node
