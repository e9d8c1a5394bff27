// baton-decode: grants KV blocks, receives them, streams tokens.
#include <algorithm>
#include <memory>

#include "decode_node/decode_node.h"
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
             return config.decode.max_batch + config.decode.local_prefill_chunk;
           },
       .make = [](node::RoleDeps deps) -> std::unique_ptr<node::Role> {
         return std::make_unique<decode_node::DecodeNode>(std::move(deps));
       }});
}
