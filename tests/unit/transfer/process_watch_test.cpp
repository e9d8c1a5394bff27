#include "transfer/process_watch.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace baton::transfer {
namespace {

TEST(ProcessWatch, TheOwnProcessIsAlive) {
  const ProcessIdentity own = own_identity();
  EXPECT_NE(own.host, 0U);
  EXPECT_NE(own.start, 0U);
  EXPECT_EQ(own, own_identity());
  const auto fd = watch_process(own);
  ASSERT_TRUE(fd.has_value());
  ASSERT_TRUE(static_cast<bool>(*fd));
  pollfd waiting{fd->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
}

TEST(ProcessWatch, AnotherHostIsNotWatched) {
  ProcessIdentity other = own_identity();
  other.host ^= 2;
  const auto fd = watch_process(other);
  ASSERT_TRUE(fd.has_value());
  EXPECT_FALSE(static_cast<bool>(*fd));
  EXPECT_TRUE(watch_process({}).has_value());
}

TEST(ProcessWatch, AReusedPidIsADeadProcess) {
  ProcessIdentity earlier = own_identity();
  earlier.start -= 1;
  const auto fd = watch_process(earlier);
  ASSERT_FALSE(fd.has_value());
  EXPECT_EQ(fd.error().code, ErrorCode::PeerDead);
}

TEST(ProcessWatch, ReadableOnceTheProcessHasEnded) {
  std::array<char, 16> program{"/bin/cat"};
  std::array<char*, 2> argv{program.data(), nullptr};
  std::array<int, 2> input{};
  ASSERT_EQ(::pipe(input.data()), 0);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  ::posix_spawn_file_actions_addclose(&actions, input[1]);
  pid_t pid = 0;
  ASSERT_EQ(::posix_spawn(&pid, program.data(), &actions, nullptr, argv.data(), environ), 0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(input[0]);
  ProcessIdentity child = own_identity();
  child.pid = static_cast<std::uint32_t>(pid);
  // The child's start time is unknown here: a wrong one says dead, the right one is within some
  // ticks of now.
  Result<UniqueFd> fd = fail(ErrorCode::PeerDead, "");
  for (int tick = 0; !fd && tick < 100'000; ++tick) {
    fd = watch_process(child);
    ++child.start;
  }
  ASSERT_TRUE(fd && *fd);
  pollfd waiting{fd->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
  ::close(input[1]);
  EXPECT_EQ(::poll(&waiting, 1, 30'000), 1);
  ::waitpid(pid, nullptr, 0);
  EXPECT_FALSE(watch_process(child).has_value());
}

}  // namespace
}  // namespace baton::transfer
