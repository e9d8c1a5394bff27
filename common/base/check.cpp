#include "common/base/check.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace baton {
namespace {

constexpr int kReaderLimitMs = 500;

std::atomic<void (*)()> first = nullptr;

}  // namespace

void at_check_failure(void (*run_first)()) {
  first = run_first;
}

void check_failed(const char* file, int line, const char* what, std::string_view why) {
  if (const auto run_first = first.load()) {
    run_first();
  }
  std::array<char, 4096> text;  // a pipe with any room takes it whole
  const int length = std::snprintf(text.data(),
                                   text.size(),
                                   "baton: internal error at %s:%d: %s: %.*s\n",
                                   file,
                                   line,
                                   what,
                                   static_cast<int>(why.size()),
                                   why.data());
  pollfd room{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (length > 0 && ::poll(&room, 1, kReaderLimitMs) != 0) {
    const auto bytes = std::min(static_cast<std::size_t>(length), text.size() - 1);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), bytes);
  }
  std::abort();
}

}  // namespace baton
