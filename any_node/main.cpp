// baton-node: a prefill or a decode node, whichever it is asked to be. It begins with the role of
// the pool that names it and takes the other one when the gateway's pool controller says so
// (docs/pools.md).
#include "decode_node/role_info.h"
#include "prefill_node/role_info.h"

int main(int argc, char** argv) {
  using namespace baton;
  return node::run_node(argc,
                        argv,
                        {.name = "baton-node",
                         .description = "A node of either role, which the gateway may change",
                         .roles = {prefill_node::role_info(), decode_node::role_info()}});
}
