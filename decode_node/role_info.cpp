#include "decode_node/role_info.h"

#include <memory>

#include "decode_node/decode_node.h"
#include "engine/speculation/draft_plan.h"

namespace baton::decode_node {

node::RoleInfo role_info() {
  return {.role = "decode",
          .pool = [](const ClusterConfig& config) { return &config.decode.pool; },
          .max_step_tokens =
              [](const ClusterConfig& config) {
                const auto& decode = config.decode;
                const std::uint32_t drafts =
                    decode.speculation.mode == "off" ? 0 : engine::kMaxStepDrafts;
                return decode.max_batch + decode.local_prefill_chunk + drafts;
              },
          .make = [](node::RoleDeps deps) -> std::unique_ptr<node::Role> {
            return std::make_unique<DecodeNode>(std::move(deps));
          },
          .may_draft = true};
}

}  // namespace baton::decode_node
