// Lines on their way to a file, mostly stderr: whoever has one leaves it in a bounded queue, and a
// thread of its own writes. A pipe that nobody reads, or a disk that is full, so stops nobody. When
// the queue is full the oldest line goes; lines that were dropped are counted, and told by one line
// in their place once writing works again.
//
// Owner: `stderr_lines()` lives as long as the process; others are a test's. Thread: any. Failure:
// none that a caller sees; what cannot be written is dropped.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace baton {

class LineWriter {
 public:
  struct Limits {
    std::size_t lines = 4096;
    std::size_t bytes = std::size_t{4} << 20;
  };
  static constexpr std::chrono::milliseconds kFlushLimit{1'000};

  // `file` stays open longer than the writer, and than a write that nobody takes.
  LineWriter(int file, Limits limits);
  explicit LineWriter(int file) : LineWriter(file, Limits()) {}
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;
  ~LineWriter();  // leaves what is not written yet; never waits

  // With its newline. Never waits for the file.
  void push(std::string line);
  // How the line that tells of dropped ones looks; "" tells nothing.
  void tell_gaps(std::function<std::string(std::uint64_t dropped)> line);
  // Waits until all is written, or `limit` is over: false. May be called in a signal handler.
  bool flush(std::chrono::milliseconds limit = kFlushLimit) const;
  std::uint64_t dropped() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

// The process's stderr. From the first call on, what is in the queue comes out before the process
// ends: at its exit, when a BATON_CHECK fails, and at a signal that means a fault (SIGABRT, SIGSEGV
// and their kin), each time for `kFlushLimit` at most. Flush before `exec`.
LineWriter& stderr_lines();

}  // namespace baton
