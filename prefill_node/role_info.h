// The prefill role for a process that hosts it: where its nodes stand in the configuration and how
// one is made.
//
// Thread: plain value. Failure: none.
#pragma once

#include "node/host/host.h"

namespace baton::prefill_node {

node::RoleInfo role_info();

}  // namespace baton::prefill_node
