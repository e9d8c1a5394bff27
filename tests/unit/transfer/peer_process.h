// A process of its own that a test talks to by its pipes (soak_peer.cpp, transfer_peer.cpp).
//
// Owner: a test. Thread: the test's. Failure: what does not come in time is nothing.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace baton::testing {

constexpr int kHangMs = 120'000;

class PeerProcess {
 public:
  // `arguments` of PEER_PROGRAM, which begins with a line "address …".
  explicit PeerProcess(std::vector<std::string> arguments) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::string program = PEER_PROGRAM;
    std::vector<char*> argv{program.data()};
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
    const auto line = read();
    EXPECT_TRUE(line && line->starts_with("address "));
    address_ = line.value_or("address ").substr(8);
  }
  ~PeerProcess() {
    kill();
    ::close(to_);
    ::close(from_);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& address() const { return address_; }
  void renew_inlet() {
    say("inlet");
    const auto line = read_until("address ");
    ASSERT_TRUE(line);
    address_ = line->substr(8);
  }
  void say(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(to_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // The next line, or nothing after a hang or the process's end.
  std::optional<std::string> read() {
    while (buffer_.find('\n') == std::string::npos) {
      pollfd waiting{from_, POLLIN, 0};
      std::array<char, 4096> bytes;
      if (::poll(&waiting, 1, kHangMs) <= 0) {
        return std::nullopt;
      }
      const ssize_t got = ::read(from_, bytes.data(), bytes.size());
      if (got <= 0) {
        return std::nullopt;
      }
      buffer_.append(bytes.data(), static_cast<std::size_t>(got));
    }
    const auto end = buffer_.find('\n');
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    return line;
  }
  // Skips lines until one starts with `word`.
  std::optional<std::string> read_until(const std::string& word) {
    for (auto line = read(); line; line = read()) {
      if (line->starts_with(word)) {
        return line;
      }
    }
    return std::nullopt;
  }
  // Returns when every thread of it stands.
  void stop() {
    ::kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void go_on() { ::kill(pid_, SIGCONT); }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = 0;
    }
  }

 private:
  pid_t pid_ = 0;
  int to_ = -1;
  int from_ = -1;
  std::string address_;
  std::string buffer_;
};

}  // namespace baton::testing
