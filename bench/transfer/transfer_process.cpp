#include "bench/transfer/transfer_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

namespace baton::bench {
namespace {

constexpr int kSilenceMs = 60'000;  // no turn takes nearly as long
constexpr int kEndRounds = 100;     // of 10 ms

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) {
    out.push_back(word.data());
  }
  out.push_back(nullptr);
  return out;
}

}  // namespace

Result<std::unique_ptr<TransferProcess>> TransferProcess::start(
    std::vector<std::string> command,
    const std::vector<std::pair<std::string, std::string>>& environment,
    bool is_silent) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) {
    return fail(ErrorCode::IoError, "no pipe");
  }
  if (::pipe2(out.data(), O_CLOEXEC) != 0) {
    ::close(in[0]);
    ::close(in[1]);
    return fail(ErrorCode::IoError, "no pipe");
  }
  ::signal(SIGPIPE, SIG_IGN);  // a child that died is noticed by its output's end
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (is_silent) {
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) {
    variables.push_back(fmt::format("{}={}", name, value));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);  // of two with one name the first counts
  }
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid,
                                  command[0].c_str(),
                                  &actions,
                                  &attributes,
                                  pointers(command).data(),
                                  pointers(variables).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  if (error != 0) {
    ::close(in[1]);
    ::close(out[0]);
    return fail(ErrorCode::IoError, fmt::format("cannot start {}", command[0]));
  }
  return std::unique_ptr<TransferProcess>(new TransferProcess(pid, in[1], out[0]));
}

TransferProcess::~TransferProcess() {
  resume();
  ::close(to_);  // the child ends at the end of its input
  for (int i = 0; i < kEndRounds; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      ::close(from_);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  ::close(from_);
}

void TransferProcess::say(const std::string& line) {
  const std::string text = line + '\n';
  // A child that is gone is noticed when it is heard.
  [[maybe_unused]] const auto written = ::write(to_, text.data(), text.size());
}

Result<std::istringstream> TransferProcess::hear(const std::string& word) {
  std::size_t end = heard_.find('\n');
  while (end == std::string::npos) {
    pollfd input{from_, POLLIN, 0};
    if (::poll(&input, 1, kSilenceMs) <= 0) {
      return fail(ErrorCode::IoError, fmt::format("the process says no \"{}\"", word));
    }
    std::array<char, 4096> bytes;
    const ssize_t got = ::read(from_, bytes.data(), bytes.size());
    if (got <= 0) {
      return fail(ErrorCode::IoError, fmt::format("the process died before \"{}\"", word));
    }
    heard_.append(bytes.data(), static_cast<std::size_t>(got));
    end = heard_.find('\n');
  }
  std::istringstream words(heard_.substr(0, end));
  heard_.erase(0, end + 1);
  std::string first;
  words >> first;
  if (first == word) {
    return words;
  }
  std::string rest;
  std::getline(words >> std::ws, rest);
  if (first == "failed") {
    return fail(ErrorCode::Unavailable, rest);
  }
  return fail(ErrorCode::IoError, fmt::format("the process says \"{} {}\"", first, rest));
}

void TransferProcess::pause() {
  ::kill(-pid_, SIGSTOP);
}

void TransferProcess::resume() {
  ::kill(-pid_, SIGCONT);
}

}  // namespace baton::bench
