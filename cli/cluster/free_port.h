// TCP ports for clusters that are started on this machine.
//
// Thread: any. Failure: IoError when no port can be had.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/error.h"

namespace baton::cli {

// True when somebody listens on host:port, or the address cannot be bound here.
bool is_port_busy(const std::string& host, std::uint16_t port);
// A port that can be bound now, outside the range the system gives to outgoing connections, so that
// nobody is handed it by chance before it is used.
Result<std::uint16_t> find_free_port(const std::string& host);

}  // namespace baton::cli
