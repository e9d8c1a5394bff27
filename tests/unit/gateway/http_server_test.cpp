// The public listener alone, with real sockets on port 0: limits, framing, order, disconnects.
#include "gateway/http/http_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tests/support/raw_http_client.h"

namespace baton::gateway {
namespace {

using std::chrono::milliseconds;
using testing::http_call;
using testing::http_request;
using testing::RawHttpClient;

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    options.tick = milliseconds(20);
    auto started = HttpServer::start(
        options, [this](std::shared_ptr<HttpExchange> exchange) { handle(std::move(exchange)); });
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }
  void TearDown() override {
    held.clear();
    if (server) {
      server->stop();
    }
  }

  // /echo answers with method, path and body; /hold keeps the exchange for the test.
  void handle(std::shared_ptr<HttpExchange> exchange) {
    const HttpRequest& request = exchange->request();
    if (request.path == "/hold") {
      exchange->set_on_gone([this] {
        const std::lock_guard lock(mutex);
        ++gone;
        changed.notify_all();
      });
      const std::lock_guard lock(mutex);
      held.push_back(std::move(exchange));
      changed.notify_all();
      return;
    }
    const std::string head = fmt::format("{} {} ", request.method, request.path);
    exchange->respond(200, {{"content-type", "text/plain"}}, head + exchange->take_body());
  }
  std::shared_ptr<HttpExchange> wait_held(std::size_t index = 0) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return held.size() > index; });
    return held[index];
  }
  void wait_gone(int count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return gone >= count; });
  }
  std::string address() const { return server->address(); }

  std::unique_ptr<HttpServer> server;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<HttpExchange>> held;
  int gone = 0;
};

TEST_F(HttpServerTest, AnswersAndKeepsAlive) {
  start();
  RawHttpClient client(address());
  for (int i = 0; i < 3; ++i) {
    client.send(http_request("POST", "/echo?x=1", "body"));
    const auto reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "POST /echo body");
  }
  EXPECT_EQ(server->stats().accepted.load(), 1U);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  RawHttpClient client(address());
  std::string all;
  for (int i = 0; i < 50; ++i) {
    all += http_request("POST", "/echo", std::to_string(i));
  }
  client.send(all);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client.read_reply().body, "POST /echo " + std::to_string(i));
  }
}

TEST_F(HttpServerTest, LargeBodiesOneBehindTheOtherArriveWhole) {
  start();
  RawHttpClient client(address());
  const std::string first(300'000, 'a');
  const std::string second(200'000, 'b');
  client.send(http_request("POST", "/echo", first) + http_request("POST", "/echo", second) +
              http_request("GET", "/echo"));
  EXPECT_EQ(client.read_reply().body, "POST /echo " + first);
  EXPECT_EQ(client.read_reply().body, "POST /echo " + second);
  EXPECT_EQ(client.read_reply().body, "GET /echo ");
}

TEST_F(HttpServerTest, PipelinedRequestWaitsForTheReplyBefore) {
  start();
  RawHttpClient client(address());
  client.send(http_request("GET", "/hold") + http_request("GET", "/echo"));
  const auto exchange = wait_held();
  exchange->post([exchange] { exchange->respond(200, {}, "first"); });
  EXPECT_EQ(client.read_reply().body, "first");
  EXPECT_EQ(client.read_reply().body, "GET /echo ");
}

TEST_F(HttpServerTest, RequestInSingleBytes) {
  start();
  RawHttpClient client(address());
  for (const char c : http_request("POST", "/echo", "slow")) {
    client.send(std::string_view(&c, 1));
  }
  EXPECT_EQ(client.read_reply().body, "POST /echo slow");
}

TEST_F(HttpServerTest, ChunkedBodyIsDecoded) {
  start();
  RawHttpClient client(address());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n");
  client.send("a;ext=1\r\n0123456789\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_reply().body, "POST /echo abc0123456789");
}

TEST_F(HttpServerTest, ExpectIsAnsweredBeforeTheBody) {
  start();
  RawHttpClient client(address());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(client.wait_for("HTTP/1.1 100 Continue\r\n\r\n"));
  client.send("body");
  EXPECT_EQ(client.read_reply().body, "POST /echo body");
}

TEST_F(HttpServerTest, BodyOverTheLimitIs413EvenWhileItIsSent) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  start(options);
  RawHttpClient client(address());
  client.send(http_request("POST", "/echo", std::string(3 << 20, 'x')));
  const auto reply = client.read_reply();
  EXPECT_EQ(reply.status, 413);
  EXPECT_NE(reply.body.find("request_too_large"), std::string::npos);
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(http_call(address(), "POST", "/echo", std::string(1000, 'x')).status, 200);
}

TEST_F(HttpServerTest, ChunkedBodyOverTheLimitIs413) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  start(options);
  RawHttpClient client(address());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 20; ++i) {
    client.send("64\r\n" + std::string(100, 'x') + "\r\n");
  }
  EXPECT_EQ(client.read_reply().status, 413);
}

TEST_F(HttpServerTest, ExpectOverTheLimitIsRefusedAtOnce) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  start(options);
  RawHttpClient client(address());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\nExpect: 100-continue\r\n\r\n");
  const auto reply = client.read_reply();
  EXPECT_EQ(reply.status, 413);
}

TEST_F(HttpServerTest, HeadOverTheLimitIs431) {
  start();
  const auto reply =
      http_call(address(), "GET", "/echo", "", "X-Big: " + std::string(20'000, 'x') + "\r\n");
  EXPECT_EQ(reply.status, 431);
  EXPECT_NE(reply.body.find("headers_too_large"), std::string::npos);
}

TEST_F(HttpServerTest, HeadOverTheLimitIs431AlsoInOnePiece) {
  HttpServerOptions options;
  options.max_header_bytes = 1000;
  start(options);
  EXPECT_EQ(
      http_call(address(), "GET", "/echo", "", "X: " + std::string(1500, 'x') + "\r\n").status,
      431);
  EXPECT_NE(http_call(address(), "GET", "/echo", "", "X: " + std::string(500, 'x') + "\r\n").status,
            431);
}

TEST_F(HttpServerTest, GarbageIs400) {
  start();
  for (const char* garbage :
       {"\x16\x03\x01\x02\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    RawHttpClient client(address());
    client.send(garbage);
    const auto reply = client.read_reply();
    EXPECT_EQ(reply.status, 400) << garbage;
    EXPECT_TRUE(client.wait_closed());
  }
}

TEST_F(HttpServerTest, SlowHeadIsCut) {
  HttpServerOptions options;
  options.header_timeout = milliseconds(100);
  start(options);
  RawHttpClient client(address());
  client.send("GET /echo HTTP/1.1\r\nX:");
  EXPECT_EQ(client.read_reply().status, 408);
  EXPECT_TRUE(client.wait_closed());
  EXPECT_EQ(server->stats().timed_out.load(), 1U);
}

TEST_F(HttpServerTest, SlowBodyIsCut) {
  HttpServerOptions options;
  options.body_timeout = milliseconds(100);
  start(options);
  RawHttpClient client(address());
  client.send("POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_EQ(client.read_reply().status, 408);
}

TEST_F(HttpServerTest, IdleConnectionIsClosed) {
  HttpServerOptions options;
  options.idle_timeout = milliseconds(100);
  start(options);
  RawHttpClient client(address());
  client.send(http_request("GET", "/echo"));
  EXPECT_EQ(client.read_reply().status, 200);
  EXPECT_TRUE(client.wait_closed());
}

TEST_F(HttpServerTest, EachOfManyIdleConnectionsIsClosed) {
  HttpServerOptions options;
  options.idle_timeout = milliseconds(100);
  start(options);
  std::deque<RawHttpClient> clients;  // more than are looked at in one go
  for (int i = 0; i < 300; ++i) {
    clients.emplace_back(address());
  }
  for (RawHttpClient& client : clients) {
    EXPECT_TRUE(client.wait_closed());
  }
}

TEST_F(HttpServerTest, ReplyIsToldOfSilenceAgainAndAgain) {
  start();
  RawHttpClient client(address());
  client.send(http_request("GET", "/hold"));
  const auto exchange = wait_held();
  exchange->post([exchange] {
    exchange->start_stream(200, {{"content-type", "text/plain"}});
    exchange->set_on_silence(milliseconds(30), [exchange, times = std::make_shared<int>(0)] {
      exchange->write("quiet");
      if (++*times == 3) {
        exchange->finish();
      }
    });
  });
  EXPECT_EQ(client.read_reply().body, "quietquietquiet");
}

TEST_F(HttpServerTest, StreamIsChunkedAndConnectionGoesOn) {
  start();
  RawHttpClient client(address());
  client.send(http_request("GET", "/hold"));
  const auto exchange = wait_held();
  exchange->post([exchange] {
    exchange->start_stream(200, {{"content-type", "text/event-stream"}});
    exchange->write("data: a\n\n");
  });
  EXPECT_TRUE(client.wait_for("9\r\ndata: a\n\n\r\n"));
  exchange->post([exchange] {
    exchange->write("data: b\n\n");
    exchange->finish();
  });
  const auto reply = client.read_reply();
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.body, "data: a\n\ndata: b\n\n");
  client.send(http_request("GET", "/echo"));
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST_F(HttpServerTest, Http10StreamEndsByClosing) {
  start();
  RawHttpClient client(address());
  client.send("GET /hold HTTP/1.0\r\n\r\n");
  const auto exchange = wait_held();
  exchange->post([exchange] {
    exchange->start_stream(200, {});
    exchange->write("abc");
    exchange->finish();
  });
  const auto reply = client.read_reply();
  EXPECT_EQ(reply.header("transfer-encoding"), "");
  EXPECT_EQ(reply.body, "abc");
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  start();
  RawHttpClient client(address());
  client.send(http_request("HEAD", "/echo") + http_request("GET", "/echo"));
  EXPECT_TRUE(client.wait_for("GET /echo "));
  EXPECT_NE(client.raw().find("content-length: 11\r\n\r\nHTTP/1.1 200"), std::string::npos)
      << client.raw();
}

TEST_F(HttpServerTest, LeavingClientIsNoticedWhileItWaits) {
  start();
  RawHttpClient client(address());
  client.send(http_request("GET", "/hold"));
  const auto exchange = wait_held();
  client.close();
  wait_gone(1);
  // Writing to a client that has left does nothing.
  exchange->post([exchange] {
    EXPECT_FALSE(exchange->is_open());
    exchange->respond(200, {}, "late");
  });
}

TEST_F(HttpServerTest, SlowReaderIsCutNotBuffered) {
  HttpServerOptions options;
  options.max_unsent_bytes = 100'000;
  options.send_buffer_bytes = 4096;
  start(options);
  RawHttpClient client(address(), 4096);
  client.send(http_request("GET", "/hold"));
  const auto exchange = wait_held();
  exchange->post([exchange] {
    exchange->start_stream(200, {});
    for (int i = 0; i < 1000 && exchange->is_open(); ++i) {
      exchange->write(std::string(1000, 'x'));
    }
    EXPECT_FALSE(exchange->is_open());
  });
  wait_gone(1);
  EXPECT_EQ(server->stats().slow_cut.load(), 1U);
}

TEST_F(HttpServerTest, StalledReaderIsCutInTime) {
  HttpServerOptions options;
  options.send_buffer_bytes = 4096;
  options.write_timeout = milliseconds(100);
  start(options);
  RawHttpClient client(address(), 4096);
  client.send(http_request("GET", "/hold"));
  const auto exchange = wait_held();
  exchange->post([exchange] {
    exchange->start_stream(200, {});
    exchange->write(std::string(500'000, 'x'));
  });
  wait_gone(1);
  EXPECT_EQ(server->stats().slow_cut.load(), 1U);
}

TEST_F(HttpServerTest, LargeReplyArrivesWhole) {
  start();
  RawHttpClient client(address());
  const std::string body(5 << 20, 'y');
  client.send(http_request("POST", "/echo", body));
  EXPECT_EQ(client.read_reply().body.size(), body.size() + 11);
}

TEST_F(HttpServerTest, PagesOfOtherOriginsMayNotRead) {
  HttpServerOptions options;
  options.cors_origins = {"https://a.example", "https://b.example"};
  options.max_body_bytes = 10;
  start(options);
  const auto allowed = http_call(address(), "GET", "/echo", "", "Origin: https://b.example\r\n");
  EXPECT_EQ(allowed.header("access-control-allow-origin"), "https://b.example");
  EXPECT_EQ(allowed.header("vary"), "origin");
  const auto other = http_call(address(), "GET", "/echo", "", "Origin: https://c.example\r\n");
  EXPECT_EQ(other.status, 200);
  EXPECT_EQ(other.header("access-control-allow-origin"), "");
  const auto large =
      http_call(address(), "POST", "/echo", std::string(100, 'x'), "Origin: https://a.example\r\n");
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(large.header("access-control-allow-origin"), "https://a.example");
}

TEST_F(HttpServerTest, ErrorsOfTheListenerCanBeReadByEveryPage) {
  start();
  RawHttpClient client(address());
  client.send("BROKEN\r\n\r\n");
  const auto reply = client.read_reply();
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.header("access-control-allow-origin"), "*");
}

TEST_F(HttpServerTest, ConnectionsAboveTheLimitAreClosed) {
  HttpServerOptions options;
  options.max_connections = 2;
  start(options);
  RawHttpClient first(address());
  RawHttpClient second(address());
  first.send(http_request("GET", "/echo"));
  EXPECT_EQ(first.read_reply().status, 200);
  second.send(http_request("GET", "/echo"));
  EXPECT_EQ(second.read_reply().status, 200);
  RawHttpClient third(address());
  EXPECT_TRUE(third.wait_closed());
  EXPECT_EQ(server->stats().turned_away.load(), 1U);
  first.close();
  while (server->stats().open.load() > 1) {
    std::this_thread::yield();
  }
  EXPECT_EQ(http_call(address(), "GET", "/echo").status, 200);
}

TEST_F(HttpServerTest, BusyPortIsAnError) {
  start();
  HttpServerOptions options;
  options.listen = address();
  const auto second = HttpServer::start(options, [](std::shared_ptr<HttpExchange>) {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::IoError);
  EXPECT_NE(second.error().message.find(address()), std::string::npos);
}

TEST_F(HttpServerTest, DrainFinishesRepliesAndRefusesNewConnections) {
  start();
  RawHttpClient busy(address());
  busy.send(http_request("GET", "/hold"));
  RawHttpClient idle(address());
  idle.send(http_request("GET", "/echo"));
  EXPECT_EQ(idle.read_reply().status, 200);
  const auto exchange = wait_held();
  std::jthread drainer([&] { server->drain(std::chrono::seconds(20)); });
  EXPECT_TRUE(idle.wait_closed());
  RawHttpClient late(address());
  EXPECT_TRUE(!late.is_connected() || late.wait_closed());
  exchange->post([exchange] { exchange->respond(200, {}, "done"); });
  const auto reply = busy.read_reply();
  EXPECT_EQ(reply.body, "done");
  EXPECT_EQ(reply.header("connection"), "close");
  busy.close();
}

TEST_F(HttpServerTest, ManyConnectionsOverSeveralThreads) {
  HttpServerOptions options;
  options.io_threads = 3;
  start(options);
  std::vector<std::unique_ptr<RawHttpClient>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<RawHttpClient>(address()));
    clients.back()->send(http_request("POST", "/echo", std::to_string(i)));
  }
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(clients[static_cast<std::size_t>(i)]->read_reply().body,
              "POST /echo " + std::to_string(i));
  }
}

}  // namespace
}  // namespace baton::gateway
