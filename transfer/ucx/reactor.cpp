#include "transfer/ucx/reactor.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "common/base/cores.h"

namespace baton::transfer {
namespace {

// Rounds without work before the thread sleeps while transfers are open. An empty round takes well
// under a microsecond; a sleep and its wake-up cost about ten.
constexpr int kSpinRounds = 500;
// Beside the descriptors, in case UCX misses a wake-up; also drives keepalive.
constexpr int kTimerMs = 100;
// Rounds after which a thread that never sleeps looks at its descriptors.
constexpr std::uint64_t kPollRounds = 1024;

}  // namespace

Result<std::unique_ptr<Reactor>> Reactor::create() {
  const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int poll_fd = ::epoll_create1(EPOLL_CLOEXEC);
  std::unique_ptr<Reactor> self(new Reactor(wake_fd, poll_fd));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_fd;
  if (wake_fd < 0 || poll_fd < 0 || ::epoll_ctl(poll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0) {
    return fail(ErrorCode::IoError,
                std::string("descriptors of the data thread: ") + std::strerror(errno));
  }
  return self;
}

Reactor::~Reactor() {
  stop();
  for (const int fd : {wake_fd_, poll_fd_}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

void Reactor::start(Hooks hooks) {
  hooks_ = std::move(hooks);
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "baton-data");
}

void Reactor::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_over_) {
      commands_.push_back(std::move(command));
      if (is_sleeping_) {
        is_sleeping_ = false;
        const std::uint64_t one = 1;
        // A full counter wakes the thread as well, so the result does not matter.
        [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof(one));
      }
      return;
    }
  }
  const std::lock_guard lock(after_mutex_);
  command();
}

void Reactor::poke() {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_ || !commands_.empty()) {
      return;  // it turns for what waits already
    }
  }
  post([] {});
}

void Reactor::stop() {
  post([this] {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  });
  if (thread_.joinable()) {
    BATON_CHECK(thread_.get_id() != std::this_thread::get_id(),
                "a data thread's callback does not stop its transport");
    thread_.join();
  }
}

bool Reactor::run_commands() {
  {
    const std::lock_guard lock(mutex_);
    running_.swap(commands_);
  }
  const bool any = !running_.empty();
  for (Command& command : running_) {
    command();
  }
  running_.clear();
  return any;
}

void Reactor::run() {
  prefer_short_turns();
  int idle_rounds = 0;
  while (true) {
    if (loops_.fetch_add(1, std::memory_order_relaxed) % kPollRounds == 0) {
      poll(0);
    }
    bool worked = run_commands();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) {
        break;
      }
    }
    for (int i = 0; i < 16 && hooks_.progress() != 0; ++i) {
      worked = true;
    }
    worked |= hooks_.turn();
    if (worked) {
      idle_rounds = 0;
    } else if (++idle_rounds > kSpinRounds || !hooks_.has_traffic()) {
      sleep();
    }
  }
  hooks_.shut_down();
  while (run_commands()) {
  }
  std::vector<Command> last;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    last.swap(commands_);
  }
  const std::lock_guard lock(after_mutex_);
  for (Command& command : last) {
    command();
  }
}

void Reactor::sleep() {
  if (!hooks_.arm()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!commands_.empty()) {
      return;
    }
    is_sleeping_ = true;
  }
  poll(kTimerMs);
  const std::lock_guard lock(mutex_);
  is_sleeping_ = false;
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(wake_fd_, &count, sizeof(count));
}

void Reactor::poll(int timeout_ms) {
  std::array<epoll_event, 16> events;
  const int count =
      ::epoll_wait(poll_fd_, events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const auto at = watched_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (at != watched_.end() && at->second) {
      const auto readable = at->second;  // it may unwatch itself
      readable();
    }
  }
}

Status Reactor::watch(int fd, std::function<void()> readable) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(poll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail(ErrorCode::IoError, std::string("watching a descriptor: ") + std::strerror(errno));
  }
  watched_[fd] = std::move(readable);
  return {};
}

void Reactor::unwatch(int fd) {
  ::epoll_ctl(poll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(fd);
}

}  // namespace baton::transfer
