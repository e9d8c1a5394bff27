#include "gateway/cluster/model_publisher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace baton::gateway {
namespace {

constexpr auto kRoles = std::to_array<const char*>({"prefill", "decode"});
constexpr auto kStates = std::to_array<const char*>({"alive", "suspect", "draining"});

}  // namespace

ModelPublisher::ModelPublisher(Metrics& metrics,
                               const Membership& membership,
                               const RouteHealth& health,
                               const ArtifactFetcher& fetcher,
                               ModelSection configured,
                               ModelDirectory& directory)
    : metrics_(metrics),
      membership_(membership),
      health_(health),
      fetcher_(fetcher),
      configured_(std::move(configured)),
      directory_(directory) {
  for (const char* role : kRoles) {
    for (const char* state : kStates) {
      node_gauges_[fmt::format("{} {}", role, state)] =
          metrics_.gauge("baton_nodes", "Registered nodes", {{"role", role}, {"state", state}});
    }
  }
}

ServedModel ModelPublisher::describe(const ModelEntry& entry) const {
  ServedModel model;
  model.id = entry.identity.id();
  model.created = entry.identity.created();
  model.context_length = entry.identity.context_length();
  model.vocab_size = entry.identity.vocab_size();
  model.fingerprint = fmt::format("fp_{:016x}", entry.identity.numerics_hash());
  model.nodes = entry.nodes;
  const auto views = membership_.views_of(model.id);
  model.is_usable = has_usable_pair(views, barred_pairs(health_, membership_));
  model.artifacts = fetcher_.find(entry.identity.tokenizer_hash());
  if (model.artifacts != nullptr) {
    const FormatOverride choice =
        model.id == configured_.id
            ? FormatOverride{configured_.tool_parser, configured_.reasoning_parser}
            : FormatOverride{};
    model.tool_format = tool_format_of(model.artifacts->format, choice);
    model.has_reasoning = has_reasoning(model.artifacts->format, choice);
  }
  // A request must fit the memory of one decode node too, or it would wait for ever.
  std::uint64_t held = 0;
  for (const Node* node : membership_.nodes()) {
    if (node->model.id() != model.id) {
      continue;
    }
    const std::uint32_t block_tokens = std::max(1U, node->model.layout().block_tokens());
    if (std::ranges::find(model.block_sizes, block_tokens) == model.block_sizes.end()) {
      model.block_sizes.push_back(block_tokens);
    }
    if (node->role == NodeRole::Decode) {
      held = std::max(held, std::uint64_t{node->load.blocks_total()} * block_tokens);
    }
  }
  model.max_tokens =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(held, model.context_length));
  if (held == 0) {
    // They may be restarting: what they held before.
    const auto before = directory_.get();
    const auto known = before->find(model.id);
    model.max_tokens = known == before->end() ? model.context_length : known->second.max_tokens;
  }
  return model;
}

void ModelPublisher::publish() {
  ServedModels models;
  for (const auto& [id, entry] : membership_.models()) {
    models[id] = describe(entry);
  }
  // A model whose nodes are all gone stays known: its requests get 503, not 404.
  const auto before = directory_.get();
  for (const auto& [id, model] : *before) {
    if (!models.contains(id)) {
      ServedModel gone = model;
      gone.nodes = 0;
      gone.is_usable = false;
      models[id] = std::move(gone);
    }
  }
  if (models != *before) {
    directory_.publish(std::move(models));
  }
  count_nodes();
}

void ModelPublisher::count_nodes() {
  std::map<std::string, double> counts;
  for (const Node* node : membership_.nodes()) {
    const char* state = node->is_draining()                 ? "draining"
                        : node->health == PeerHealth::Alive ? "alive"
                                                            : "suspect";
    counts[fmt::format("{} {}", node->role == NodeRole::Decode ? "decode" : "prefill", state)] += 1;
  }
  for (auto& [key, gauge] : node_gauges_) {
    gauge.set(counts[key]);
  }
}

}  // namespace baton::gateway
