// Who a process is, so that another process of the same host can watch for its death. UCX finds a
// dead peer on shared memory only by keepalive, and not at all before the connection is complete; a
// pid descriptor tells at once, and is proof that nothing of the process can be written any more.
//
// Thread: any. Failure: see each function; on another host there is nothing to watch.
#pragma once

#include <cstdint>

#include "common/base/error.h"

namespace baton::transfer {

struct ProcessIdentity {
  std::uint64_t host = 0;   // of boot id and pid namespace; 0: unknown
  std::uint64_t start = 0;  // start time in clock ticks: a re-used pid is another process
  std::uint32_t pid = 0;
  bool operator==(const ProcessIdentity&) const = default;
};

ProcessIdentity own_identity();

// A file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;  // none
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept;
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A descriptor that becomes readable when the process ends; none when it runs on another host or
// the system has no such thing. Failure: PeerDead when it is of this host and has ended already.
Result<UniqueFd> watch_process(const ProcessIdentity& process);

}  // namespace baton::transfer
