#include "common/obs/line_writer.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/exec/thread.h"

namespace baton {
namespace {

// False: the file takes no more (no reader, no room on the disk). `torn`: a line was begun and not
// ended; the next one then begins on a line of its own.
bool write_all(int file, std::string line, bool& torn) {
  if (torn && !line.empty()) {
    line.insert(0, 1, '\n');
  }
  for (std::string_view text = line; !text.empty();) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      torn = !text.empty() && (torn || written > 0);
    } else if (errno == EAGAIN) {
      pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

// Signals are for the threads that wait for them; one of these would end the process here.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

struct LineWriter::State {
  State(int to, Limits most) : file(to), limits(most) {}

  const int file;
  const Limits limits;
  std::atomic<std::uint64_t> dropped = 0;
  std::atomic<std::uint64_t> unwritten = 0;  // in the queue, and the one that is being written
  std::mutex mutex;                          // guards what follows; held for no write
  std::condition_variable changed;
  std::deque<std::string> queue;
  std::size_t bytes = 0;     // of the queue
  std::uint64_t untold = 0;  // dropped just before the queue's first
  std::function<std::string(std::uint64_t)> gap_line = [](std::uint64_t) { return std::string(); };
  bool stopped = false;
  bool torn = false;  // the writing thread's

  // REQUIRES: the mutex held, the queue not empty.
  std::string take() {
    std::string line = std::move(queue.front());
    queue.pop_front();
    bytes -= line.size();
    return line;
  }
  void drop(std::uint64_t lines) {
    dropped.fetch_add(lines, std::memory_order_relaxed);
    untold += lines;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stopped || !queue.empty(); });
      if (stopped) {
        return;
      }
      const std::uint64_t gap = std::exchange(untold, 0);
      std::string told = gap > 0 ? gap_line(gap) : std::string();
      std::string line = take();
      lock.unlock();
      const bool is_told = write_all(file, std::move(told), torn);
      const bool is_written = is_told && write_all(file, std::move(line), torn);
      lock.lock();
      untold += is_told ? 0 : gap;
      if (!is_written) {
        drop(1);
      }
      unwritten.fetch_sub(1, std::memory_order_release);
    }
  }
};

LineWriter::LineWriter(int file, Limits limits) : state_(std::make_shared<State>(file, limits)) {
  const AllSignalsBlocked blocked;
  // Detached: it may be waiting for a reader that never comes when the process ends.
  std::thread([state = state_] {
    set_thread_name("log");
    state->run();
  }).detach();
}

LineWriter::~LineWriter() {
  const std::lock_guard lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_one();
}

void LineWriter::push(std::string line) {
  const std::lock_guard lock(state_->mutex);
  while (!state_->queue.empty() && (state_->queue.size() >= state_->limits.lines ||
                                    state_->bytes + line.size() > state_->limits.bytes)) {
    state_->take();
    state_->drop(1);
    state_->unwritten.fetch_sub(1, std::memory_order_relaxed);
  }
  state_->bytes += line.size();
  state_->queue.push_back(std::move(line));
  state_->unwritten.fetch_add(1, std::memory_order_relaxed);
  state_->changed.notify_one();
}

void LineWriter::tell_gaps(std::function<std::string(std::uint64_t)> line) {
  const std::lock_guard lock(state_->mutex);
  state_->gap_line = std::move(line);
}

// No lock: the thread that a fault has struck may hold it.
bool LineWriter::flush(std::chrono::milliseconds limit) const {
  constexpr timespec kStep{.tv_sec = 0, .tv_nsec = 500'000};
  const auto end = std::chrono::steady_clock::now() + limit;
  while (state_->unwritten.load(std::memory_order_acquire) > 0) {
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    ::nanosleep(&kStep, nullptr);
  }
  return true;
}

std::uint64_t LineWriter::dropped() const {
  return state_->dropped.load(std::memory_order_relaxed);
}

namespace {

constexpr std::array kFaults{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};

std::atomic<LineWriter*> of_stderr = nullptr;
std::array<struct sigaction, kFaults.size()> handlers_before;

void flush_stderr() {
  of_stderr.load()->flush();
}

// Then the signal goes its old way: a fault strikes again, another's signal is raised anew, and
// abort() ends the process after its handler.
void on_fault(int number, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  flush_stderr();
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    if (kFaults[i] == number) {
      ::sigaction(number, &handlers_before[i], nullptr);
    }
  }
  if (info->si_code <= 0) {
    ::raise(number);
  }
  errno = error;
}

LineWriter* make_stderr_lines() {
  // Never destroyed: lines may come until the very end.
  of_stderr = new LineWriter(STDERR_FILENO);
  std::atexit(flush_stderr);
  at_check_failure(flush_stderr);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (std::size_t i = 0; i < kFaults.size(); ++i) {
    ::sigaction(kFaults[i], &action, &handlers_before[i]);
  }
  return of_stderr;
}

}  // namespace

LineWriter& stderr_lines() {
  static LineWriter* const lines = make_stderr_lines();
  return *lines;
}

}  // namespace baton
