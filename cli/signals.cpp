#include "cli/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace baton::cli {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&set, number);
  }
  return set;
}

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = watched();
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ >= 0) {
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  if (fd_ >= 0) {
    close(fd_);
    const sigset_t set = watched();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  }
}

std::optional<int> SignalWatch::take() {
  signalfd_siginfo info{};
  if (fd_ >= 0 && read(fd_, &info, sizeof(info)) == sizeof(info)) {
    return static_cast<int>(info.ssi_signo);
  }
  return std::nullopt;
}

}  // namespace baton::cli
