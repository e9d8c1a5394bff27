#include "bench/gateway/load_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>

#include "bench/cluster/response_reader.h"

namespace baton::bench {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kEvents = 256;

// Exponential, as the gaps of a Poisson process are.
double random_gap(const RandomSource& random, double rate) {
  const double uniform = (static_cast<double>(random() >> 11U) + 0.5) * 0x1p-53;
  return -std::log(uniform) / rate;
}

}  // namespace

struct LoadClient::Connection {
  int fd = -1;
  bool is_busy = false;
  bool wants_write = false;
  std::string output;
  std::size_t written = 0;
  ResponseReader reader;
  std::string tail;  // of the body: a mark may be cut in two
  std::string bytes;
  LoadAnswer answer;

  ~Connection() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
};

std::string chat_post(const HostPort& server, std::string_view body) {
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      server.to_string(),
      body.size(),
      body);
}

LoadClient::LoadClient(HostPort server, std::string mark)
    : server_(std::move(server)), mark_(std::move(mark)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  (void)::prctl(PR_SET_TIMERSLACK, 1000);  // requests leave when they are due
}

LoadClient::~LoadClient() {
  connections_.clear();
  ::close(epoll_);
}

Result<LoadClient::Connection*> LoadClient::open() {
  auto connection = std::make_unique<Connection>();
  BATON_ASSIGN(connection->fd, connect_to(server_));
  (void)::fcntl(connection->fd, F_SETFL, O_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = connection.get();
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, connection->fd, &event) != 0) {
    return fail(ErrorCode::IoError, "cannot watch a connection: " + reason(errno));
  }
  connections_.push_back(std::move(connection));
  return connections_.back().get();
}

Status LoadClient::send(std::string request, std::uint64_t tag, Nanoseconds due) {
  Connection* connection = nullptr;
  while (!idle_.empty() && connection == nullptr) {
    connection = idle_.back()->fd >= 0 ? idle_.back() : nullptr;
    idle_.pop_back();
  }
  if (connection == nullptr) {
    BATON_ASSIGN(connection, open());
  }
  connection->is_busy = true;
  ++busy_;
  connection->output = std::move(request);
  connection->written = 0;
  connection->answer = LoadAnswer{};
  connection->answer.tag = tag;
  connection->answer.due = due;
  connection->answer.sent = now_ns();
  write(*connection);
  return {};
}

void LoadClient::write(Connection& connection) {
  while (connection.written < connection.output.size()) {
    const ssize_t count = ::send(connection.fd,
                                 connection.output.data() + connection.written,
                                 connection.output.size() - connection.written,
                                 MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0 && errno == EAGAIN) {
      break;
    }
    if (count < 0) {
      return finish(connection, false);
    }
    connection.written += static_cast<std::size_t>(count);
  }
  const bool wants = connection.written < connection.output.size();
  if (wants != connection.wants_write) {
    connection.wants_write = wants;
    epoll_event event{};
    event.events = wants ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.ptr = &connection;
    (void)::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.fd, &event);
  }
  if (!wants) {
    connection.output = {};
  }
}

void LoadClient::read(Connection& connection) {
  static thread_local std::array<char, kReadBytes> buffer;
  Nanoseconds now = 0;
  const ssize_t count = receive_stamped(connection.fd, buffer, now);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (count <= 0 || !connection.is_busy) {
    if (connection.is_busy) {
      return finish(connection, false);
    }
    ::close(connection.fd);
    connection.fd = -1;
    return;
  }
  LoadAnswer& answer = connection.answer;
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
  if (keep_bytes_) {
    connection.bytes += bytes;
  }
  connection.reader.feed(bytes, [&](std::string_view body) {
    answer.first = answer.first == 0 ? now : answer.first;
    if (mark_.empty()) {
      return;
    }
    connection.tail += body;
    std::size_t at = 0;
    for (std::size_t next = connection.tail.find(mark_); next != std::string::npos;
         next = connection.tail.find(mark_, at)) {
      ++answer.marks;
      ++marks_;
      at = next + mark_.size();
    }
    at = std::max(at, connection.tail.size() - std::min(connection.tail.size(), mark_.size() - 1));
    connection.tail.erase(0, at);
  });
  answer.last = now;
  if (connection.reader.is_broken()) {
    return finish(connection, false);
  }
  if (connection.reader.is_done()) {
    finish(connection, true);
  }
}

void LoadClient::finish(Connection& connection, bool is_whole) {
  connection.answer.status = connection.reader.status();
  connection.answer.has_retry_after = connection.reader.has_retry_after();
  connection.answer.is_whole = is_whole;
  answers_.push_back(connection.answer);
  connection.reader.reset();
  connection.tail.clear();
  last_bytes_ = std::exchange(connection.bytes, {});
  connection.is_busy = false;
  --busy_;
  if (is_whole) {
    idle_.push_back(&connection);
  } else {
    ::close(connection.fd);
    connection.fd = -1;
  }
}

Status LoadClient::receive(Nanoseconds until, bool until_idle) {
  std::array<epoll_event, kEvents> events;
  while (!until_idle || busy_ > 0) {
    if (now_ns() >= until) {
      break;
    }
    // Never asleep: awake.h says why.
    const int count = ::epoll_wait(epoll_, events.data(), kEvents, 0);
    if (count < 0 && errno != EINTR) {
      return fail(ErrorCode::IoError, "waiting for answers: " + reason(errno));
    }
    if (count == 0) {
      ::sched_yield();
    }
    for (int i = 0; i < count; ++i) {
      Connection& connection =
          *static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr);
      const auto what = events[static_cast<std::size_t>(i)].events;
      if ((what & EPOLLOUT) != 0 && connection.fd >= 0) {
        write(connection);
      }
      if ((what & ~std::uint32_t{EPOLLOUT}) != 0 && connection.fd >= 0) {
        read(connection);
      }
    }
  }
  return {};
}

Status LoadClient::open_loop(double rate,
                             double seconds,
                             double patience_s,
                             const RandomSource& random,
                             const std::function<std::string(std::uint64_t)>& make) {
  const Nanoseconds begin = now_ns();
  const Nanoseconds end = begin + to_ns(seconds);
  Nanoseconds due = begin + to_ns(random_gap(random, rate));
  for (std::uint64_t tag = 0; due < end; ++tag) {
    std::string request = make(tag);
    BATON_TRY(receive(due));
    BATON_TRY(send(std::move(request), tag, due));
    due += to_ns(random_gap(random, rate));
  }
  return receive(now_ns() + to_ns(patience_s), true);
}

Status LoadClient::closed_loop(unsigned width,
                               double seconds,
                               double patience_s,
                               const std::function<std::string(std::uint64_t)>& make) {
  const Nanoseconds end = now_ns() + to_ns(seconds);
  std::uint64_t tag = 0;
  while (now_ns() < end) {
    while (busy_ < width) {
      BATON_TRY(send(make(tag), tag, now_ns()));
      ++tag;
    }
    BATON_TRY(receive(std::min(end, now_ns() + 1'000'000)));
  }
  return receive(now_ns() + to_ns(patience_s), true);
}

std::vector<LoadAnswer> LoadClient::take_answers() {
  return std::exchange(answers_, {});
}

void LoadClient::give_up() {
  for (const auto& connection : connections_) {
    if (connection->is_busy) {
      finish(*connection, false);
    }
  }
}

}  // namespace baton::bench
