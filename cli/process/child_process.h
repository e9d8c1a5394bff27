// A child process: started with its own output files, watched through a pidfd, ended for sure.
//
// Owner: whoever started it; the destructor kills and reaps. Thread: one. The child dies with the
// thread that started it (PR_SET_PDEATHSIG), so that `kill -9` of the parent leaves nothing behind.
// Failure: a program that cannot be started gives IoError with its path and the system's reason.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace baton::cli {

struct ChildOptions {
  std::vector<std::string> command;  // [0] is found by PATH
  std::string output_file;           // both outputs; empty: inherited
  bool append = true;                // to output_file
  bool own_group = true;             // Ctrl-C in the terminal does not reach it
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
};

struct ExitState {
  int code = 0;                    // exit status, when it ended by itself
  int signal = 0;                  // != 0: the signal that ended it
  std::size_t peak_rss_bytes = 0;  // most memory it had at a time, mapped files included
  bool clean() const { return code == 0 && signal == 0; }
  // "exit status 3", "killed by signal 9 (Killed)".
  std::string to_string() const;
  // As a shell would report it.
  int shell_status() const { return signal != 0 ? 128 + signal : code; }
};

class ChildProcess {
 public:
  static Result<ChildProcess> start(const ChildOptions& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Readable (poll) once the process has ended.
  int watch_fd() const { return pidfd_; }
  // The end of the process, when it has ended; reaps it.
  std::optional<ExitState> poll_exit();
  // Waits up to `limit`; nullopt when it still runs then.
  std::optional<ExitState> wait(std::chrono::milliseconds limit);
  void signal(int number);
  // SIGTERM, then SIGKILL after `grace`; returns how it ended.
  ExitState stop(std::chrono::milliseconds grace);

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}
  void close_watch();

  pid_t pid_ = -1;  // -1: moved from
  int pidfd_ = -1;
  std::optional<ExitState> exit_;
};

// Runs a command to its end and gives its output; for short helpers.
struct CommandOutput {
  ExitState exit;
  std::string text;  // of `output_file`, at most its last 64 KiB
};
Result<CommandOutput> run_to_end(const ChildOptions& options);

// The last `lines` lines of a file, for messages about a child that died.
std::string last_lines(const std::string& path, std::size_t lines);

}  // namespace baton::cli
