#include "gateway/model_lookup.h"

namespace baton::gateway {

ApiResult<FoundModel> find_model(const ModelDirectory& models,
                                 const std::string& id,
                                 const std::string& configured) {
  auto all = models.get();
  const auto found = all->find(id);
  if (found == all->end() && id != configured) {
    return std::unexpected(model_not_found(id));
  }
  if (found == all->end() || found->second.artifacts == nullptr) {
    return std::unexpected(
        to_api_error(Error{ErrorCode::Unavailable, "No node serves this model yet."}));
  }
  const ServedModel* model = &found->second;
  return FoundModel{std::move(all), model};
}

}  // namespace baton::gateway
