#include "transfer/process_watch.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace baton::transfer {
namespace {

std::uint64_t host_hash() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::array<char, 128> name{};
  const auto length = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  if (!std::getline(file, text) || length <= 0) {
    return 0;
  }
  text.append(name.data(), static_cast<std::size_t>(length));
  return XXH3_64bits(text.data(), text.size()) | 1U;
}

// Field 22 of /proc/PID/stat; the name in field 2 may hold spaces and ends with the last ')'. 0
// when there is no such process.
std::uint64_t start_time(std::uint32_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) {
    fields >> skipped;
  }
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

}  // namespace

ProcessIdentity own_identity() {
  const auto pid = static_cast<std::uint32_t>(::getpid());
  return {host_hash(), start_time(pid), pid};
}

UniqueFd::UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Result<UniqueFd> watch_process(const ProcessIdentity& process) {
  if (process.host == 0 || process.start == 0 || process.host != host_hash()) {
    return UniqueFd();
  }
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!fd && errno != ESRCH) {
    return UniqueFd();
  }
  // Read after opening: from here on the descriptor stands for whoever has this start time.
  if (!fd || start_time(process.pid) != process.start) {
    return fail(ErrorCode::PeerDead, fmt::format("process {} of this host has ended", process.pid));
  }
  return fd;
}

}  // namespace baton::transfer
