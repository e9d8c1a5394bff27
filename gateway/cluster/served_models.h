// What I/O threads know of the cluster: an immutable picture that the control strand publishes anew
// after each change.
//
// Owner: the composition root. Thread: `publish` on the control strand, `get` from any. Failure:
// none.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/chat_template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"
#include "gateway/tools/tool_format.h"

namespace baton::gateway {

// What a gateway takes from a node to serve its model.
struct ModelArtifacts {
  std::uint64_t tokenizer_hash = 0;
  std::unique_ptr<const engine::Tokenizer> tokenizer;
  std::unique_ptr<const engine::ChatTemplate> chat_template;  // null: the model has none
  ModelFormat format;
};

struct ServedModel {
  std::string id;
  std::uint64_t created = 0;         // unix seconds
  std::uint32_t context_length = 0;  // of the model
  std::uint32_t max_tokens = 0;      // prompt and answer that a decode node here can hold
  std::uint32_t vocab_size = 0;
  std::vector<std::uint32_t> block_sizes;  // tokens a block; different ones of its nodes
  std::string fingerprint;
  bool is_usable = false;                           // a pair of nodes could serve it
  std::uint32_t nodes = 0;                          // 0: seen before, all gone now
  std::shared_ptr<const ModelArtifacts> artifacts;  // null until fetched
  // As detected in the artifacts, or as the configuration says.
  ToolFormat tool_format = ToolFormat::Unknown;
  bool has_reasoning = false;
  bool operator==(const ServedModel&) const = default;
  bool is_ready() const { return is_usable && artifacts != nullptr; }
};

using ServedModels = std::map<std::string, ServedModel>;  // by id

class Rollout;

class ModelDirectory {
 public:
  // `rollout`: names of models beside those that nodes bring; outlives the directory.
  explicit ModelDirectory(const Rollout& rollout) : rollout_(rollout) {}

  std::shared_ptr<const ServedModels> get() const { return models_.load(); }
  const Rollout& rollout() const { return rollout_; }
  void publish(ServedModels models) {
    models_.store(std::make_shared<const ServedModels>(std::move(models)));
  }

 private:
  const Rollout& rollout_;
  std::atomic<std::shared_ptr<const ServedModels>> models_{std::make_shared<const ServedModels>()};
};

}  // namespace baton::gateway
