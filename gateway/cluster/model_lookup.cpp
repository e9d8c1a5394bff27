#include "gateway/cluster/model_lookup.h"

#include "gateway/cluster/rollout.h"

namespace baton::gateway {

ApiResult<FoundModel> find_model(const ModelDirectory& models,
                                 const std::string& id,
                                 const std::string& configured,
                                 std::uint64_t session) {
  auto all = models.get();
  const ServedModel* model = models.rollout().choose(*all, id, session);
  if (model == nullptr && id != configured && !models.rollout().has(id)) {
    return std::unexpected(model_not_found(id));
  }
  if (model == nullptr || model->artifacts == nullptr) {
    return std::unexpected(
        to_api_error(Error{ErrorCode::Unavailable, "No node serves this model yet."}));
  }
  return FoundModel{std::move(all), model};
}

}  // namespace baton::gateway
