// What the addresses of a configuration say about hosts.
//
// Thread: pure functions. Failure: none; an address that cannot be read is another host's.
#pragma once

#include <string>

#include "common/config/cluster_config.h"

namespace baton {

// "host:port" of this host alone.
bool is_loopback(const std::string& address);

// Every address that nodes dial or listen at is this host's own (loopback).
bool stays_on_one_host(const ClusterConfig& config);

}  // namespace baton
