// Keeps an executor's thread from sleeping. Clients and nodes of the benchmark stand for other
// hosts: a message to a process that sleeps on the gateway's own host would cost the gateway a
// wake-up, which no message through a network card costs.
//
// Thread: the executor's. Failure: none; it ends with the executor.
#pragma once

#include <sched.h>

#include "common/exec/executor.h"

namespace baton::bench {

// Others on the same processor have their turns.
inline void keep_awake(Executor& executor) {
  ::sched_yield();
  executor.post([&executor] { keep_awake(executor); });
}

}  // namespace baton::bench
