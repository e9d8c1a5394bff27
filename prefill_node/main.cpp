// baton-prefill: computes prompts and sends their KV blocks to decode nodes.
#include <algorithm>
#include <memory>

#include "node/host/host.h"
#include "prefill_node/prefill_node.h"

int main(int argc, char** argv) {
  using namespace baton;
  return node::run_node(
      argc,
      argv,
      {.program = "baton-prefill",
       .role = "prefill",
       .description = "A prefill node: computes prompts and sends their KV blocks over UCX",
       .pool = [](const ClusterConfig& config) { return &config.prefill.pool; },
       .max_step_tokens =
           [](const ClusterConfig& config) {
             return std::max(config.prefill.step_tokens, config.prefill.chunk_tokens);
           },
       .make = [](node::RoleDeps deps) -> std::unique_ptr<node::Role> {
         return std::make_unique<prefill_node::PrefillNode>(std::move(deps));
       }});
}
