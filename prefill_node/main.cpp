// baton-prefill: computes prompts and sends their KV blocks to decode nodes.
#include "prefill_node/role_info.h"

int main(int argc, char** argv) {
  using namespace baton;
  return node::run_node(
      argc,
      argv,
      {.name = "baton-prefill",
       .description = "A prefill node: computes prompts and sends their KV blocks over UCX",
       .roles = {prefill_node::role_info()}});
}
