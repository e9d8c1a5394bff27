// Names of models that the configuration gives: each is served by revisions side by side, models
// under names of their own on nodes, by weight. Which revision a request gets is a function of its
// session alone (rendezvous hashing), so that a session stays, on every gateway, and a changed
// weight moves only the sessions it has to. A revision that no pair can serve hands its sessions to
// the next in their order; one of weight 0 gets none at all.
//
// Owner: ApiHandler's. Thread: const after building, any. Failure: null for a name nobody has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/gateway_section.h"
#include "gateway/cluster/served_models.h"

namespace baton::gateway {

class Rollout {
 public:
  explicit Rollout(std::vector<ModelName> names) : names_(std::move(names)) {}

  // What serves a request for `name`: a model of `models`. Where no revision can be served, the
  // session's own, for its error; null: unknown, or its nodes were never there.
  const ServedModel* choose(const ServedModels& models,
                            const std::string& name,
                            std::uint64_t session) const;
  bool has(const std::string& name) const { return find(name) != nullptr; }
  // A configured name as clients see it: what all its revisions can do; nothing while none has
  // nodes.
  std::optional<ServedModel> describe(const ServedModels& models, const std::string& name) const;
  // All that clients may ask for and that has nodes, in order of name.
  ServedModels visible(const ServedModels& models) const;

 private:
  const ModelName* find(const std::string& name) const;

  const std::vector<ModelName> names_;
};

// Of the key a client gave, or what else tells sessions apart.
std::uint64_t session_of(const std::string& key);

}  // namespace baton::gateway
