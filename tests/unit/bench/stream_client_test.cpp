// The client of `bench interference` against a server that sends what it is told, piece by piece.
#include "bench/cluster/stream_client.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace baton::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Nanoseconds kLimit = 20'000'000'000;

// Answers one request with `pieces`, a write each, then closes.
class OneAnswer {
 public:
  explicit OneAnswer(std::vector<std::string> pieces) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 1), 0);
    socklen_t size = sizeof(address);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([fd = fd_, pieces = std::move(pieces)] {
      const int client = ::accept(fd, nullptr, nullptr);
      std::string request;
      char byte = 0;
      while (request.find("}") == std::string::npos && ::read(client, &byte, 1) == 1) {
        request += byte;
      }
      for (const std::string& piece : pieces) {
        EXPECT_EQ(::write(client, piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
        std::this_thread::yield();
      }
      ::close(client);
    });
  }
  ~OneAnswer() {
    thread_.join();
    ::close(fd_);
  }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;
  HostPort address() const { return {"127.0.0.1", port_}; }

 private:
  int fd_;
  std::uint16_t port_ = 0;
  std::jthread thread_;
};

constexpr const char* kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string chunk(const std::string& text) {
  char size[16];
  std::snprintf(size, sizeof(size), "%zx\r\n", text.size());
  return size + text + "\r\n";
}
std::string event(const std::string& text, const std::string& ids) {
  return "data: {\"choices\":[{\"text\":\"" + text + "\",\"token_ids\":[" + ids + "]}]}\n\n";
}

std::vector<std::string> texts(const StreamAnswer& answer) {
  std::vector<std::string> out;
  for (const StreamEvent& event : answer.events) {
    out.push_back(event.text);
  }
  return out;
}

TEST(StreamClient, UnderstandsEventsHoweverTheyAreCut) {
  const std::string body = kHead + chunk(event("a", "1")) +
                           chunk(event("b", "2") + event("c", "3,4")) + chunk(": a comment\n\n") +
                           chunk("data: {\"choices\":[]}\n\n") + chunk("data: [DONE]\n\n") +
                           "0\r\n\r\n";
  for (std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{50}, body.size()}) {
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < body.size(); at += size) {
      pieces.push_back(body.substr(at, size));
    }
    const OneAnswer server(pieces);
    StreamClient client(server.address());
    const auto number = client.start("{}");
    ASSERT_TRUE(number) << number.error().message;
    ASSERT_TRUE(client.run_until(now_ns() + kLimit));
    const auto answer = client.answer(*number);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(answer->is_whole);
    EXPECT_THAT(texts(*answer), ElementsAre("a", "b", "c"));
    EXPECT_THAT(answer->events[2].token_ids, ElementsAre(3, 4));
    Nanoseconds last = answer->sent - 1'000'000;  // the clock may be set back a little
    for (const StreamEvent& got : answer->events) {
      EXPECT_GE(got.at, last);
      last = got.at;
    }
  }
}

TEST(StreamClient, WaitsForSomeEventsAndLeaves) {
  const OneAnswer server({kHead, chunk(event("a", "1")), chunk(event("b", "2"))});
  StreamClient client(server.address());
  const auto number = client.start("{}");
  ASSERT_TRUE(number);
  ASSERT_TRUE(client.wait_for(*number, 2, kLimit));
  client.leave(*number);
  const auto answer = client.answer(*number);
  ASSERT_TRUE(answer);
  EXPECT_THAT(texts(*answer), ElementsAre("a", "b"));
  EXPECT_FALSE(answer->is_whole);
}

TEST(StreamClient, AStreamThatBreaksOffIsNotWhole) {
  const OneAnswer server({kHead, chunk(event("a", "1"))});
  StreamClient client(server.address());
  const auto number = client.start("{}");
  ASSERT_TRUE(number);
  ASSERT_TRUE(client.run_until(now_ns() + kLimit));
  const auto answer = client.answer(*number);
  ASSERT_TRUE(answer);
  EXPECT_THAT(texts(*answer), ElementsAre("a"));
  EXPECT_FALSE(answer->is_whole);
}

TEST(StreamClient, WhatIsNoStreamIsAnErrorThatSaysIt) {
  const OneAnswer server({"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\nlater"});
  StreamClient client(server.address());
  const auto number = client.start("{}");
  ASSERT_TRUE(client.run_until(now_ns() + kLimit));
  const auto answer = client.answer(*number);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("503 Busy"));
  EXPECT_FALSE(StreamClient({"127.0.0.1", 1}).start("{}"));
}

TEST(StreamClient, AnErrorEventIsAnError) {
  const OneAnswer server({kHead, chunk("data: {\"error\":{\"message\":\"lost\"}}\n\n")});
  StreamClient client(server.address());
  const auto number = client.start("{}");
  ASSERT_TRUE(client.run_until(now_ns() + kLimit));
  const auto answer = client.answer(*number);
  ASSERT_FALSE(answer);
  EXPECT_THAT(answer.error().message, HasSubstr("lost"));
}

}  // namespace
}  // namespace baton::bench
