#include "bench/cluster/thread_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace baton::bench {

ThreadTimes thread_times(pid_t process) {
  namespace fs = std::filesystem;
  ThreadTimes out;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", process), gone)) {
    const std::string id = task.path().filename().string();
    pid_t thread = 0;
    std::from_chars(id.data(), id.data() + id.size(), thread);
    ThreadTime time;
    std::ifstream comm(task.path() / "comm");
    std::ifstream stat(task.path() / "schedstat");
    if (std::getline(comm, time.name) && stat >> time.run_ns >> time.wait_ns >> time.turns) {
      out[thread] = time;
    }
  }
  return out;
}

std::vector<std::string> describe_threads(const std::string& process,
                                          const ThreadTimes& before,
                                          const ThreadTimes& after,
                                          double seconds) {
  std::vector<ThreadTime> did;
  for (const auto& [id, time] : after) {
    ThreadTime delta = time;
    if (const auto at = before.find(id); at != before.end()) {
      delta.run_ns -= at->second.run_ns;
      delta.wait_ns -= at->second.wait_ns;
      delta.turns -= at->second.turns;
    }
    if (delta.turns > 0) {
      did.push_back(delta);
    }
  }
  std::ranges::sort(did, std::greater{}, &ThreadTime::run_ns);
  std::vector<std::string> lines;
  for (const ThreadTime& time : did) {
    lines.push_back(fmt::format(
        "{:<12} {:<16} ran {:>5.1f} %, waited {:>5.2f} %, {:>7.0f} turns/s of {:.0f} us",
        process,
        time.name,
        static_cast<double>(time.run_ns) * 1e-7 / seconds,
        static_cast<double>(time.wait_ns) * 1e-7 / seconds,
        static_cast<double>(time.turns) / seconds,
        static_cast<double>(time.run_ns) * 1e-3 / static_cast<double>(time.turns)));
  }
  return lines;
}

}  // namespace baton::bench
