#include "cli/process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace baton::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kTailBytes = 64 * 1024;

std::string reason(int error) {
  return std::error_code(error, std::generic_category()).message();
}

// What the child needs, prepared before fork: between fork and exec only system calls are safe.
struct Prepared {
  std::vector<char*> arguments;
  std::vector<std::string> variables;
  std::vector<char*> environment;
};

Prepared prepare(const ChildOptions& options) {
  Prepared made;
  for (const std::string& argument : options.command) {
    made.arguments.push_back(const_cast<char*>(argument.c_str()));  // exec never writes
  }
  made.arguments.push_back(nullptr);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const bool replaced = std::ranges::any_of(
        options.environment, [&](const auto& pair) { return text.starts_with(pair.first + "="); });
    if (!replaced) {
      made.variables.emplace_back(text);
    }
  }
  for (const auto& [key, value] : options.environment) {
    made.variables.push_back(key + "=" + value);
  }
  for (std::string& variable : made.variables) {
    made.environment.push_back(variable.data());
  }
  made.environment.push_back(nullptr);
  return made;
}

[[noreturn]] void become(
    const ChildOptions& options, const Prepared& made, int output, int report, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGHUP}) {
    ::signal(number, SIG_DFL);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) {  // it died before prctl
    _exit(127);
  }
  if (options.own_group) {
    setpgid(0, 0);
  }
  if (output >= 0) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) {
      dup2(nothing, STDIN_FILENO);
    }
  }
  execvpe(made.arguments[0], made.arguments.data(), made.environment.data());
  const int error = errno;
  const ssize_t ignored = write(report, &error, sizeof(error));
  static_cast<void>(ignored);
  _exit(127);
}

}  // namespace

std::string ExitState::to_string() const {
  if (signal != 0) {
    return fmt::format("killed by signal {} ({})", signal, sigdescr_np(signal));
  }
  return fmt::format("exit status {}", code);
}

Result<ChildProcess> ChildProcess::start(const ChildOptions& options) {
  if (options.command.empty()) {
    return fail(ErrorCode::InvalidArgument, "no command to run");
  }
  int output = -1;
  if (!options.output_file.empty()) {
    output = open(options.output_file.c_str(),
                  O_WRONLY | O_CREAT | O_CLOEXEC | (options.append ? O_APPEND : O_TRUNC),
                  0644);
    if (output < 0) {
      return fail(ErrorCode::IoError,
                  fmt::format("cannot write {}: {}", options.output_file, reason(errno)));
    }
  }
  int report[2];  // carries exec's errno; closed by a successful exec
  if (pipe2(report, O_CLOEXEC) != 0) {
    const int error = errno;
    if (output >= 0) {
      close(output);
    }
    return fail(ErrorCode::IoError, "no pipe: " + reason(error));
  }
  const Prepared made = prepare(options);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(options, made, output, report[1], parent);
  }
  const int fork_error = errno;
  close(report[1]);
  if (output >= 0) {
    close(output);
  }
  int exec_error = 0;
  ssize_t got = 0;
  if (pid > 0) {
    do {
      got = read(report[0], &exec_error, sizeof(exec_error));
    } while (got < 0 && errno == EINTR);
  }
  close(report[0]);
  if (pid < 0) {
    return fail(ErrorCode::IoError, "cannot fork: " + reason(fork_error));
  }
  if (got > 0) {
    waitpid(pid, nullptr, 0);
    return fail(ErrorCode::IoError,
                fmt::format("cannot start {}: {}", options.command[0], reason(exec_error)));
  }
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    const int error = errno;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    return fail(ErrorCode::IoError, "no pidfd (Linux 5.3 or later): " + reason(error));
  }
  return ChildProcess(pid, pidfd);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      exit_(std::exchange(other.exit_, std::nullopt)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    if (pid_ > 0) {
      stop(milliseconds{0});
    }
    close_watch();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::exchange(other.pidfd_, -1);
    exit_ = std::exchange(other.exit_, std::nullopt);
  }
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    stop(milliseconds{0});
  }
  close_watch();
}

void ChildProcess::close_watch() {
  if (pidfd_ >= 0) {
    close(pidfd_);
    pidfd_ = -1;
  }
}

std::optional<ExitState> ChildProcess::poll_exit() {
  return wait(milliseconds{0});
}

std::optional<ExitState> ChildProcess::wait(milliseconds limit) {
  if (exit_) {
    return exit_;
  }
  const auto end = steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now());
    pollfd watched{pidfd_, POLLIN, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(std::max<long>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready <= 0) {
      return std::nullopt;
    }
    int status = 0;
    rusage used{};
    if (wait4(pid_, &status, 0, &used) != pid_) {
      continue;
    }
    ExitState state;
    if (WIFSIGNALED(status)) {
      state.signal = WTERMSIG(status);
    } else {
      state.code = WEXITSTATUS(status);
    }
    state.peak_rss_bytes = static_cast<std::size_t>(used.ru_maxrss) * 1024;
    exit_ = state;
    return exit_;
  }
}

void ChildProcess::signal(int number) {
  if (!exit_) {  // not reaped, so the number still is ours
    kill(pid_, number);
  }
}

ExitState ChildProcess::stop(milliseconds grace) {
  if (!poll_exit() && grace.count() > 0) {
    signal(SIGTERM);
    wait(grace);
  }
  while (!exit_) {
    signal(SIGKILL);
    wait(milliseconds{1000});
  }
  return *exit_;
}

Result<CommandOutput> run_to_end(const ChildOptions& options) {
  BATON_ASSIGN(ChildProcess child, ChildProcess::start(options));
  std::optional<ExitState> state;
  while (!state) {
    state = child.wait(milliseconds{60'000});
  }
  CommandOutput output{*state, {}};
  if (!options.output_file.empty()) {
    output.text = last_lines(options.output_file, 1000);
  }
  return output;
}

std::string last_lines(const std::string& path, std::size_t lines) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) {
    return {};
  }
  const auto size = static_cast<std::size_t>(in.tellg());
  const std::size_t wanted = std::min(size, kTailBytes);
  in.seekg(static_cast<std::streamoff>(size - wanted));
  std::string text(wanted, '\0');
  in.read(text.data(), static_cast<std::streamsize>(wanted));
  text.resize(static_cast<std::size_t>(in.gcount()));
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  std::size_t from = text.size();
  for (std::size_t line = 0; line < lines && from != 0; ++line) {
    const std::size_t newline = text.rfind('\n', from - 1);
    from = newline == std::string::npos ? 0 : newline;
  }
  return from == 0 ? text : text.substr(from + 1);
}

}  // namespace baton::cli
