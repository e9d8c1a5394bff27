// Lines to a pipe that nobody reads: they stop nobody, and neither the end of a process.
#include "common/obs/line_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "common/base/check.h"
#include "common/base/file_limit.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

// Takes 4 KiB before a writer has to wait.
class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_) != 0 || ::fcntl(ends_[1], F_SETPIPE_SZ, 4096) < 0) {
      std::abort();
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_reader();
    ::close(ends_[1]);
  }
  int writer() const { return ends_[1]; }
  // Up to and with `end`.
  std::string read_until(const std::string& end) {
    std::string text;
    char byte = 0;
    while (!text.ends_with(end) && ::read(ends_[0], &byte, 1) == 1) {
      text += byte;
    }
    return text;
  }
  void close_reader() {
    if (ends_[0] >= 0) {
      ::close(std::exchange(ends_[0], -1));
    }
  }

 private:
  int ends_[2] = {-1, -1};
};

std::string gap(std::uint64_t dropped) {
  return fmt::format("{} dropped\n", dropped);
}

// More than the pipe takes; ends with a newline.
std::string long_line() {
  return std::string(10'000, 'x') + '\n';
}

TEST(LineWriter, WritesInOrder) {
  Pipe pipe;
  LineWriter lines(pipe.writer());
  for (int i = 0; i < 3; ++i) {
    lines.push(fmt::format("{}\n", i));
  }
  EXPECT_EQ(pipe.read_until("2\n"), "0\n1\n2\n");
  EXPECT_TRUE(lines.flush());
  EXPECT_EQ(lines.dropped(), 0U);
}

TEST(LineWriter, PipeThatNobodyReadsCostsTheOldestLines) {
  Pipe pipe;
  LineWriter lines(pipe.writer(), {.lines = 4});
  lines.tell_gaps(gap);
  lines.push(long_line());
  ASSERT_EQ(pipe.read_until("x"), "x");  // it is being written
  for (int i = 0; i < 6; ++i) {
    lines.push(fmt::format("{}\n", i));
  }
  EXPECT_EQ(lines.dropped(), 2U);
  EXPECT_FALSE(lines.flush(milliseconds(1)));
  EXPECT_EQ(pipe.read_until("5\n"), long_line().substr(1) + "2 dropped\n2\n3\n4\n5\n");
  lines.push("told once\n");
  EXPECT_EQ(pipe.read_until("\n"), "told once\n");
}

TEST(LineWriter, QueueIsBoundedInBytes) {
  Pipe pipe;
  LineWriter lines(pipe.writer(), {.bytes = 100});
  lines.tell_gaps(gap);
  lines.push(long_line());
  ASSERT_EQ(pipe.read_until("x"), "x");
  for (const char c : {'a', 'b', 'c'}) {
    lines.push(std::string(39, c) + '\n');
  }
  EXPECT_EQ(lines.dropped(), 1U);
  EXPECT_EQ(pipe.read_until("c\n"),
            long_line().substr(1) + "1 dropped\n" + std::string(39, 'b') + '\n' +
                std::string(39, 'c') + '\n');
}

TEST(LineWriter, NoReaderIsNoEnd) {
  Pipe pipe;
  pipe.close_reader();
  LineWriter lines(pipe.writer());
  lines.push("lost\n");
  EXPECT_TRUE(lines.flush());
  EXPECT_EQ(lines.dropped(), 1U);
}

// What follows is about a process's one stderr: each in a process of its own.
class StderrLines : public ::testing::Test {
 protected:
  StderrLines() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using StderrLinesDeathTest = StderrLines;

void fill(const Pipe& pipe) {
  ::dup2(pipe.writer(), STDERR_FILENO);
  for (int i = 0; i < 10; ++i) {
    stderr_lines().push(long_line());
  }
}

TEST_F(StderrLinesDeathTest, AllIsOutBeforeAFailedCheck) {
  EXPECT_DEATH(
      {
        stderr_lines().push("said before\n");
        BATON_CHECK(1 > 2, "no more");
      },
      "said before\n.*internal error.*no more");
}

TEST_F(StderrLinesDeathTest, AllIsOutBeforeASignalOfAFault) {
  EXPECT_EXIT(
      {
        stderr_lines().push("said before\n");
        std::abort();
      },
      KilledBySignal(SIGABRT),
      "said before");
}

TEST_F(StderrLinesDeathTest, AllIsOutBeforeAnExit) {
  EXPECT_EXIT(
      {
        for (int i = 0; i < 100; ++i) {
          stderr_lines().push(fmt::format("line {}\n", i));
        }
        std::exit(0);
      },
      ExitedWithCode(0),
      "line 0\n(.*\n)*line 99\n");
}

TEST_F(StderrLinesDeathTest, EndsWithAPipeThatNobodyReads) {
  EXPECT_EXIT(
      {
        Pipe pipe;
        fill(pipe);
        std::exit(3);
      },
      ExitedWithCode(3),
      "");
  EXPECT_EXIT(
      {
        Pipe pipe;
        fill(pipe);
        BATON_CHECK(1 > 2, "no more");
      },
      KilledBySignal(SIGABRT),
      "");
}

// A file that takes the half of a line, then lines again.
int tear_a_line() {
  std::string path = ::testing::TempDir() + "baton_torn_XXXXXX";
  const int file = ::mkstemp(path.data());
  LineWriter lines(file);
  lines.tell_gaps(gap);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{.rlim_cur = 50, .rlim_max = limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  lines.push(std::string(80, 'x') + '\n');
  lines.flush(milliseconds(10'000));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  lines.push("next\n");
  lines.flush(milliseconds(10'000));
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  ::unlink(path.c_str());
  return text.str() == std::string(50, 'x') + "\n1 dropped\nnext\n" ? 0 : 1;
}

TEST_F(StderrLinesDeathTest, WhatFollowsATornLineBeginsOnALineOfItsOwn) {
  EXPECT_EXIT(std::exit(tear_a_line()), ExitedWithCode(0), "");
}

// Closed ones at the start of a process: what opens next must not become its stderr.
int open_after_closed_standard_files() {
  for (int file = 0; file < 3; ++file) {
    ::close(file);
  }
  keep_standard_files();
  int ends[2];
  return ::pipe(ends) == 0 && ends[0] > STDERR_FILENO && ::write(STDERR_FILENO, "x", 1) == 1 ? 0
                                                                                             : 1;
}

TEST_F(StderrLinesDeathTest, NoOtherFileTakesTheNumbersOfStandardOnes) {
  EXPECT_EXIT(std::exit(open_after_closed_standard_files()), ExitedWithCode(0), "");
}

int log_more_than_anybody_reads() {
  Pipe pipe;
  ::dup2(pipe.writer(), STDERR_FILENO);
  const auto log = Logger::create({.level = "info", .format = "text", .process = "p0"});
  Metrics metrics;
  export_dropped_lines(metrics);
  for (int i = 0; i < 10'000; ++i) {
    log->info("line {}", i);
  }
  const auto dropped = stderr_lines().dropped();
  const std::string text = pipe.read_until("line 9999\n");
  // There may be several gaps: some before the pipe was full.
  const std::string gap_line = "Z warn  p0 log lines dropped here: ";
  std::uint64_t told = 0;
  for (auto at = text.find(gap_line); at != std::string::npos; at = text.find(gap_line, at + 1)) {
    told += std::stoull(text.substr(at + gap_line.size()));
  }
  const auto counted = fmt::format("baton_log_lines_dropped_total {}\n", dropped);
  return dropped > 0 && told == dropped && metrics.to_text().find(counted) != std::string::npos ? 0
                                                                                                : 1;
}

TEST_F(StderrLinesDeathTest, LoggerTellsWhatWasDropped) {
  EXPECT_EXIT(std::exit(log_more_than_anybody_reads()), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace baton
