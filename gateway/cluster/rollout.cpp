#include "gateway/cluster/rollout.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace baton::gateway {
namespace {

std::uint64_t spread(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31U);
}

// FNV-1a, and spread.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return spread(hash);
}

// The highest is taken; each revision is so for a share of all sessions that is its weight's.
double rank(const ModelRevision& revision, std::uint64_t session) {
  const std::uint64_t bits = spread(session ^ hash_of(revision.model));
  const double uniform = (static_cast<double>(bits >> 11U) + 0.5) * 0x1p-53;
  return -static_cast<double>(revision.weight) / std::log(uniform);
}

const ServedModel* model_named(const ServedModels& models, const std::string& name) {
  const auto found = models.find(name);
  return found == models.end() ? nullptr : &found->second;
}

}  // namespace

std::uint64_t session_of(const std::string& key) {
  return std::max<std::uint64_t>(1, hash_of(key));
}

const ModelName* Rollout::find(const std::string& name) const {
  const auto found = std::ranges::find(names_, name, &ModelName::id);
  return found == names_.end() ? nullptr : &*found;
}

const ServedModel* Rollout::choose(const ServedModels& models,
                                   const std::string& name,
                                   std::uint64_t session) const {
  const ModelName* known = find(name);
  if (known == nullptr) {
    return model_named(models, name);
  }
  const ServedModel* best = nullptr;
  double best_rank = 0;
  bool best_is_ready = false;
  for (const ModelRevision& revision : known->revisions) {
    const ServedModel* model = model_named(models, revision.model);
    if (model == nullptr || revision.weight == 0) {
      continue;
    }
    const bool ready = model->is_ready();
    const double own = rank(revision, session);
    if (best == nullptr || ready > best_is_ready || (ready == best_is_ready && own > best_rank)) {
      best = model;
      best_rank = own;
      best_is_ready = ready;
    }
  }
  return best;
}

std::optional<ServedModel> Rollout::describe(const ServedModels& models,
                                             const std::string& name) const {
  std::optional<ServedModel> all;
  for (const ModelRevision& revision : find(name)->revisions) {
    const ServedModel* model = model_named(models, revision.model);
    if (model == nullptr || model->nodes == 0 || revision.weight == 0) {
      continue;
    }
    if (!all) {
      all = *model;
      all->id = name;
    } else {
      all->created = std::max(all->created, model->created);
      all->max_tokens = std::min(all->max_tokens, model->max_tokens);
    }
  }
  return all;
}

ServedModels Rollout::visible(const ServedModels& models) const {
  ServedModels all;
  for (const auto& [id, model] : models) {
    if (model.nodes > 0 && !has(id)) {
      all.emplace(id, model);
    }
  }
  for (const ModelName& name : names_) {
    if (auto described = describe(models, name.id)) {
      all.emplace(name.id, std::move(*described));
    }
  }
  return all;
}

}  // namespace baton::gateway
