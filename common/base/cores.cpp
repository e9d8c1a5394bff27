#include "common/base/cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <set>
#include <string>
#include <system_error>

namespace baton {
namespace {

std::unexpected<Error> bad(std::string_view text) {
  return fail(
      ErrorCode::InvalidConfig,
      fmt::format("\"{}\" is no set of processors: expected numbers and ranges such as 0-3,8",
                  text.substr(0, 64)));
}

// The kernel's struct sched_attr, which not every C library declares.
struct SchedulingAttributes {
  std::uint32_t size = 0;
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // of ordinary threads: the turn asked for, nanoseconds
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

constexpr std::uint64_t kShortTurn = 100'000;  // the kernel's least

}  // namespace

Result<std::vector<unsigned>> parse_cores(std::string_view text) {
  std::set<unsigned> cores;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](unsigned& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc() && value < CPU_SETSIZE;
  };
  while (at != end) {
    unsigned first = 0;
    if (!number(first)) {
      return bad(text);
    }
    unsigned last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!number(last) || last < first) {
        return bad(text);
      }
    }
    for (unsigned core = first; core <= last; ++core) {
      cores.insert(core);
    }
    if (at != end && (*at != ',' || ++at == end)) {
      return bad(text);
    }
  }
  return std::vector<unsigned>(cores.begin(), cores.end());
}

Status stay_on(const std::vector<unsigned>& cores) {
  if (cores.empty()) {
    return {};
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned core : cores) {
    CPU_SET(core, &set);
  }
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return fail(ErrorCode::InvalidConfig,
                "this process cannot stay on the processors it was given: " +
                    std::generic_category().message(errno));
  }
  return {};
}

void prefer_short_turns() {
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0 &&
      attributes.policy == SCHED_OTHER) {
    attributes.runtime = kShortTurn;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);  // a refusal changes nothing
  }
}

}  // namespace baton
