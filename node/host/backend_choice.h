// Which backend computes a node's model: what its `engine` section asks for, or what the machine
// has.
//
// Thread: one, at start. Failure: what was asked for is not to be had, in the backend's own words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/config/cluster_config.h"
#include "kernels/ops.h"

namespace baton::node {

struct ChosenBackends {
  std::vector<std::unique_ptr<kernels::Backend>> ranks;  // one a rank, of one kind
  std::string note;  // for the log: why `auto` computes on the CPU; empty: nothing to say
};

Result<ChosenBackends> choose_backends(const EngineSection& engine);

}  // namespace baton::node
