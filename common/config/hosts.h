// What the addresses of a configuration say about hosts.
//
// Thread: pure functions. Failure: none; an address that cannot be read is another host's.
#pragma once

#include "common/config/cluster_config.h"

namespace baton {

// Every address that nodes dial or listen at is this host's own (loopback).
bool stays_on_one_host(const ClusterConfig& config);

}  // namespace baton
