// baton-decode: grants KV blocks, receives them, streams tokens.
#include "decode_node/role_info.h"

int main(int argc, char** argv) {
  using namespace baton;
  return node::run_node(
      argc,
      argv,
      {.name = "baton-decode",
       .description = "A decode node: grants KV blocks, receives them over UCX, streams tokens",
       .roles = {decode_node::role_info()}});
}
