// What the arithmetic of a plan wants to know of a model, read from its description without
// packing its weights.
//
// Thread: main. Failure: as ModelFile::open.
#pragma once

#include <string>

#include "cli/plan/plan.h"

namespace baton::cli {

Result<PlanModel> plan_model(const std::string& path, std::uint32_t block_tokens, KvDType dtype);

}  // namespace baton::cli
