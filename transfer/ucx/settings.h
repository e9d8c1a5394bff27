// UCX settings: which ones Baton ships, and how they reach UCX. UCX reads its transport settings
// from the environment only, so they are set there, and the operator's own values always win. A few
// (UCX_HANDLE_ERRORS, UCX_MEMTYPE_CACHE, UCX_LOG_*) are read when the library is loaded: only the
// environment that a process starts in reaches those.
//
// Thread: `apply_environment` before other threads read the environment. Failure: InvalidConfig
// names the setting.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "transfer/transport.h"

namespace baton::transfer {

using UcxSettings = std::vector<std::pair<std::string, std::string>>;  // names without UCX_

// Settings of the UCX core for one context (lanes, network), applied to its configuration object:
// two contexts of one process may differ in them. The operator's environment wins.
Result<UcxSettings> context_settings(const TransportOptions& options);
// Sets UCX_* variables that are not set yet: the user's, then the shipped ones.
Status apply_environment(const TransportOptions& options);
// Which paths other than active messages a context may use.
struct PutPaths {
  bool rdma = false;  // where lanes can: one-sided access is on
  bool shm = false;   // the arena is shared memory
};
// After apply_environment. One-sided access is on only where no TCP lane can be: over those it is
// emulated, and whoever reaches the port could write anywhere. Failure: InvalidConfig for a path
// that the transport cannot have.
Result<PutPaths> put_paths(const TransportOptions& options);
// True for UCX_* names that Baton ships a value of.
bool is_shipped_setting(std::string_view variable);
// The RDMA devices that the kernel has, by name.
std::vector<std::string> rdma_devices();

}  // namespace baton::transfer
