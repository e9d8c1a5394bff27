#include "prefill_node/role_info.h"

#include <algorithm>
#include <memory>

#include "prefill_node/prefill_node.h"

namespace baton::prefill_node {

node::RoleInfo role_info() {
  return {.role = "prefill",
          .pool = [](const ClusterConfig& config) { return &config.prefill.pool; },
          .max_step_tokens =
              [](const ClusterConfig& config) {
                return std::max(config.prefill.step_tokens, config.prefill.chunk_tokens);
              },
          .make = [](node::RoleDeps deps) -> std::unique_ptr<node::Role> {
            return std::make_unique<PrefillNode>(std::move(deps));
          }};
}

}  // namespace baton::prefill_node
