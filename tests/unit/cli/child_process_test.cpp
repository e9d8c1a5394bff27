// Children: output, exit states, and that they die with whoever started them.
#include "cli/process/child_process.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/cluster/free_port.h"

namespace baton::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{30'000};

std::string scratch(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          ("baton-cli-test-" + std::to_string(getpid()) + "-" + name))
      .string();
}

TEST(ChildProcess, GivesOutputAndExitStatus) {
  ChildOptions options;
  options.command = {"sh", "-c", "echo to out; echo to err >&2; echo $COLOUR; exit 7"};
  options.output_file = scratch("output");
  options.append = false;
  options.environment = {{"COLOUR", "blue"}};
  const auto done = run_to_end(options);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->exit.code, 7);
  EXPECT_EQ(done->text, "to out\nto err\nblue");
  EXPECT_EQ(done->exit.to_string(), "exit status 7");
  EXPECT_EQ(last_lines(options.output_file, 2), "to err\nblue");
  std::filesystem::remove(options.output_file);
}

TEST(ChildProcess, ProgramThatIsNotThere) {
  const auto child = ChildProcess::start({.command = {"/no/such/program"}});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().message.find("/no/such/program"), std::string::npos);
}

TEST(ChildProcess, StopKillsWhoIgnoresSigterm) {
  const std::string ready = scratch("ready");
  auto child = ChildProcess::start(
      {.command = {"sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"},
       .output_file = ready,
       .append = false});
  ASSERT_TRUE(child);
  while (last_lines(ready, 1) != "up") {
    ASSERT_FALSE(child->wait(milliseconds{5}));
  }
  const ExitState state = child->stop(milliseconds{50});
  EXPECT_EQ(state.signal, SIGKILL);
  EXPECT_EQ(state.shell_status(), 128 + SIGKILL);
  std::filesystem::remove(ready);
}

TEST(ChildProcess, DiesWithTheThreadThatStartedIt) {
  // A child of a child: killing the middle one without warning must end the last one.
  const std::string note = scratch("grandchild");
  const pid_t middle = fork();
  if (middle == 0) {
    auto grandchild = ChildProcess::start({.command = {"sleep", "600"}});
    std::ofstream(note + ".new") << (grandchild ? grandchild->pid() : -1) << "\n";
    std::filesystem::rename(note + ".new", note);
    pause();
    _exit(0);
  }
  ASSERT_GT(middle, 0);
  while (!std::filesystem::exists(note)) {
    ASSERT_EQ(kill(middle, 0), 0);
    usleep(1000);
  }
  pid_t last = -1;
  std::ifstream(note) >> last;
  ASSERT_GT(last, 0);
  ASSERT_EQ(kill(last, 0), 0);
  kill(middle, SIGKILL);
  // The orphan may stay a zombie of whoever adopts it: gone means no longer running.
  const auto running = [last] {
    std::ifstream stat("/proc/" + std::to_string(last) + "/stat");
    std::string pid;
    std::string name;
    std::string state = "X";
    stat >> pid >> name >> state;
    return state != "Z" && state != "X";
  };
  for (int i = 0; i < 10'000 && running(); ++i) {
    usleep(1000);
  }
  EXPECT_FALSE(running());
  std::filesystem::remove(note);
}

// A socket with `option` that listens at `address`, or tried to: below 0.
int listen_at(const HostPort& address, int option) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(address.port);
  inet_pton(AF_INET, address.host.c_str(), &place.sin_addr);
  if ((option != 0 && setsockopt(fd, SOL_SOCKET, option, &on, sizeof(on)) != 0) ||
      bind(fd, reinterpret_cast<const sockaddr*>(&place), sizeof(place)) != 0 ||
      listen(fd, 1) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

TEST(HeldAddress, IsItsServersAlone) {
  auto held = HeldAddress::hold("127.0.0.1");
  ASSERT_TRUE(held) << held.error().message;
  const HostPort address = held->address();
  EXPECT_EQ(listen_at(address, 0), -1);
  for (const int option : {SO_REUSEADDR, SO_REUSEPORT}) {
    const int server = listen_at(address, option);
    ASSERT_GE(server, 0) << option;
    EXPECT_TRUE(is_port_busy(address.host, address.port));
    close(server);
  }
  EXPECT_FALSE(is_port_busy(address.host, address.port));
  EXPECT_TRUE(is_port_busy("256.1.1.1", address.port));
  EXPECT_FALSE(HeldAddress::hold("256.1.1.1"));
  const HeldAddress moved = std::move(*held);
  EXPECT_EQ(moved.address(), address);
  EXPECT_EQ(listen_at(address, 0), -1);
}

}  // namespace
}  // namespace baton::cli
