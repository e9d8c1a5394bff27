// Which model a request names.
//
// Thread: any. Failure: 404 model_not_found, or 503 while no node has brought the model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gateway/cluster/served_models.h"
#include "gateway/http/api_error.h"

namespace baton::gateway {

struct FoundModel {
  std::shared_ptr<const ServedModels> all;  // keeps `model` alive
  const ServedModel* model = nullptr;       // with artifacts; of a configured name a revision
};

// `configured`: an id known even before its first node. `session`: which of several revisions.
ApiResult<FoundModel> find_model(const ModelDirectory& models,
                                 const std::string& id,
                                 const std::string& configured,
                                 std::uint64_t session);

}  // namespace baton::gateway
