// baton-decode: grants KV blocks, receives them, streams tokens.
#include <algorithm>
#include <memory>

#include "decode_node/decode_node.h"
#include "engine/speculation/draft_plan.h"
#include "node/host/host.h"

int main(int argc, char** argv) {
  using namespace baton;
  return node::run_node(
      argc,
      argv,
      {.program = "baton-decode",
       .role = "decode",
       .description = "A decode node: grants KV blocks, receives them over UCX, streams tokens",
       .pool = [](const ClusterConfig& config) { return &config.decode.pool; },
       .max_step_tokens =
           [](const ClusterConfig& config) {
             const auto& decode = config.decode;
             const std::uint32_t drafts =
                 decode.speculation.mode == "off" ? 0 : engine::kMaxStepDrafts;
             return decode.max_batch + decode.local_prefill_chunk + drafts;
           },
       .make = [](node::RoleDeps deps) -> std::unique_ptr<node::Role> {
         return std::make_unique<decode_node::DecodeNode>(std::move(deps));
       },
       .may_draft = true});
}
