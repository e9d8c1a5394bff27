#include "tests/support/raw_http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "common/base/host_port.h"

namespace baton::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  return out;
}

}  // namespace

std::string RawReply::header(std::string_view name) const {
  const std::string all = lower(head);
  const std::size_t at = all.find("\r\n" + std::string(name) + ":");
  if (at == std::string::npos) {
    return {};
  }
  const std::size_t begin = head.find_first_not_of(' ', at + 3 + name.size());
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

RawHttpClient::RawHttpClient(const std::string& address, int receive_buffer) {
  const auto where = HostPort::parse(address);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(where ? where->port : 0);
  inet_pton(AF_INET, where ? where->host.c_str() : "", &target.sin_addr);
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&target), sizeof target) != 0) {
    close();
  }
}

RawHttpClient::~RawHttpClient() {
  close();
}

void RawHttpClient::send(std::string_view bytes) {
  while (!bytes.empty() && socket_ >= 0) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

bool RawHttpClient::fill(Clock::time_point until) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd watched{socket_, POLLIN, 0};
  if (ended_ || socket_ < 0 || left <= 0 || ::poll(&watched, 1, static_cast<int>(left)) <= 0) {
    return false;
  }
  char bytes[65536];
  const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
  if (got <= 0) {
    ended_ = true;
    return false;
  }
  buffer_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

bool RawHttpClient::wait_for(std::string_view text, std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (buffer_.find(text) == std::string::npos) {
    if (!fill(until)) {
      return false;
    }
  }
  return true;
}

bool RawHttpClient::wait_closed(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  while (fill(until)) {
    buffer_.clear();
  }
  return ended_;
}

RawReply RawHttpClient::read_reply(std::chrono::milliseconds limit) {
  const auto until = Clock::now() + limit;
  RawReply reply;
  std::size_t end = 0;
  do {
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill(until)) {
        return reply;
      }
    }
    reply.head = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    reply.status = std::atoi(reply.head.c_str() + 9);
  } while (reply.status == 100);
  if (reply.header("transfer-encoding") == "chunked") {
    while (true) {
      std::size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!fill(until)) {
          return reply;
        }
      }
      const std::size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2) {
        if (!fill(until)) {
          return reply;
        }
      }
      reply.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size == 0) {
        break;
      }
    }
  } else if (const std::string length = reply.header("content-length"); !length.empty()) {
    const std::size_t size = std::strtoul(length.c_str(), nullptr, 10);
    while (buffer_.size() < size) {
      if (!fill(until)) {
        return reply;
      }
    }
    reply.body = buffer_.substr(0, size);
    buffer_.erase(0, size);
  } else if (reply.status != 204) {
    while (fill(until)) {
    }
    reply.body = std::move(buffer_);
    buffer_.clear();
  }
  reply.complete = true;
  return reply;
}

void RawHttpClient::shutdown_send() {
  ::shutdown(socket_, SHUT_WR);
}

void RawHttpClient::close() {
  if (socket_ >= 0) {
    ::close(socket_);
  }
  socket_ = -1;
}

std::string http_request(std::string_view method,
                         std::string_view path,
                         std::string_view body,
                         std::string_view more_headers) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n{}\r\n{}",
                     method,
                     path,
                     body.size(),
                     more_headers,
                     body);
}

RawReply http_call(const std::string& address,
                   std::string_view method,
                   std::string_view path,
                   std::string_view body,
                   std::string_view more_headers) {
  RawHttpClient client(address);
  client.send(http_request(method, path, body, more_headers));
  return client.read_reply();
}

std::vector<std::string> sse_events(std::string_view body) {
  std::vector<std::string> events;
  while (!body.empty()) {
    const std::size_t end = body.find("\n\n");
    const std::string_view event = body.substr(0, end);
    if (event.starts_with("data: ")) {
      events.emplace_back(event.substr(6));
    }
    body.remove_prefix(end == std::string_view::npos ? body.size() : end + 2);
  }
  return events;
}

}  // namespace baton::testing
