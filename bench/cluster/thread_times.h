// What the threads of other processes have done, as the kernel counts it: for a profile of who ran
// and who waited.
//
// Thread: any. Failure: a process or thread that is gone is left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace baton::bench {

struct ThreadTime {
  std::string name;
  std::uint64_t run_ns = 0;   // on a processor
  std::uint64_t wait_ns = 0;  // ready, and waiting for one
  std::uint64_t turns = 0;    // times it got one
};

// By thread id.
using ThreadTimes = std::map<pid_t, ThreadTime>;
ThreadTimes thread_times(pid_t process);

// One line a thread that did something between the two looks, the busiest first.
std::vector<std::string> describe_threads(const std::string& process,
                                          const ThreadTimes& before,
                                          const ThreadTimes& after,
                                          double seconds);

}  // namespace baton::bench
