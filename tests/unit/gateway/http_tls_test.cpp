// The public listener over TLS, with real sockets and certificates made on the spot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "gateway/http/http_server.h"
#include "tests/support/raw_http_client.h"
#include "tests/support/tls_client.h"

namespace baton::gateway {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::http_request;
using testing::RawHttpClient;
using testing::TlsClient;
using testing::write_certificate;

class HttpTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder);
    write_certificate(certificate, key, "first");
  }
  void TearDown() override {
    if (server) {
      server->stop();
    }
    std::filesystem::remove_all(folder);
  }
  void start(HttpServerOptions options = {}) {
    auto loaded = TlsCertificates::load(certificate, key);
    ASSERT_TRUE(loaded) << loaded.error().message;
    certificates = *loaded;
    options.tick = milliseconds(20);
    options.certificates = certificates;
    auto started = HttpServer::start(options, [this](std::shared_ptr<HttpExchange> exchange) {
      if (exchange->request().path == "/hold") {
        exchange->set_on_gone([this] {
          const std::lock_guard lock(mutex);
          gone = true;
          changed.notify_all();
        });
        held = std::move(exchange);
        return;
      }
      exchange->respond(200, {}, exchange->take_body());
    });
    ASSERT_TRUE(started) << started.error().message;
    server = std::move(*started);
  }
  void wait_handshaking(std::uint64_t count) {
    while (server->stats().handshaking.load() != count) {
      std::this_thread::yield();
    }
  }

  const std::string folder = ::testing::TempDir() + "/baton_tls_" + std::to_string(::getpid());
  const std::string certificate = folder + "/certificate.pem";
  const std::string key = folder + "/key.pem";
  std::shared_ptr<TlsCertificates> certificates;
  std::unique_ptr<HttpServer> server;
  std::shared_ptr<HttpExchange> held;
  std::mutex mutex;
  std::condition_variable changed;
  bool gone = false;
};

TEST_F(HttpTlsTest, AnswersKeepsAliveAndPipelines) {
  start();
  TlsClient client(server->address());
  ASSERT_TRUE(client.is_connected());
  EXPECT_EQ(client.common_name(), "first");
  client.send(http_request("POST", "/", "one"));
  EXPECT_THAT(client.read_until("one"), HasSubstr("HTTP/1.1 200 OK\r\n"));
  client.send(http_request("POST", "/", "two") + http_request("POST", "/", "three"));
  EXPECT_THAT(client.read_until("three"), HasSubstr("two"));
  EXPECT_EQ(server->stats().accepted.load(), 1U);
  EXPECT_EQ(server->stats().handshaking.load(), 0U);
}

TEST_F(HttpTlsTest, LargeBodiesGoBothWays) {
  HttpServerOptions options;
  options.send_buffer_bytes = 4096;
  options.max_unsent_bytes = std::size_t{16} << 20;
  start(options);
  TlsClient client(server->address());
  ASSERT_TRUE(client.is_connected());
  std::string body;
  while (body.size() < 3'000'000) {
    body += std::to_string(body.size()) + ",";
  }
  body += "end of it";
  client.send(http_request("POST", "/", body));
  EXPECT_THAT(client.read_until("end of it"), EndsWith("\r\n\r\n" + body));
}

TEST_F(HttpTlsTest, EndsWithCloseNotifyNotWithACut) {
  start();
  TlsClient client(server->address());
  client.send(http_request("POST", "/", "last", "Connection: close\r\n"));
  EXPECT_THAT(client.read_until("never"), EndsWith("last"));
}

TEST_F(HttpTlsTest, OldVersionsAndPlainHttpAreCut) {
  start();
  EXPECT_FALSE(TlsClient(server->address(), TLS1_1_VERSION).is_connected());
  TlsClient twelve(server->address(), TLS1_2_VERSION);
  ASSERT_TRUE(twelve.is_connected());
  EXPECT_EQ(twelve.version(), "TLSv1.2");
  RawHttpClient plain(server->address());
  plain.send(http_request("GET", "/"));
  EXPECT_TRUE(plain.wait_closed());
  EXPECT_EQ(server->stats().malformed.load(), 2U);
}

TEST_F(HttpTlsTest, SlowHandshakeIsCut) {
  HttpServerOptions options;
  options.handshake_timeout = milliseconds(60);
  start(options);
  RawHttpClient silent(server->address());
  EXPECT_TRUE(silent.wait_closed());
  EXPECT_EQ(server->stats().timed_out.load(), 1U);
  EXPECT_EQ(server->stats().handshaking.load(), 0U);
}

TEST_F(HttpTlsTest, HandshakesInWorkAreBounded) {
  HttpServerOptions options;
  options.max_handshakes = 2;
  start(options);
  RawHttpClient first(server->address());
  RawHttpClient second(server->address());
  wait_handshaking(2);
  RawHttpClient third(server->address());
  EXPECT_TRUE(third.wait_closed());
  EXPECT_EQ(server->stats().turned_away.load(), 1U);
  first.close();
  wait_handshaking(1);
  EXPECT_TRUE(TlsClient(server->address()).is_connected());
}

TEST_F(HttpTlsTest, LeavingClientIsNoticed) {
  start();
  {
    TlsClient client(server->address());
    client.send(http_request("GET", "/hold"));
    RawHttpClient other(server->address());
    client.send(http_request("GET", "/after"));  // pipelined: read ahead, not answered yet
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return gone; });
}

TEST_F(HttpTlsTest, CertificatesAreReadAgain) {
  start();
  TlsClient before(server->address());
  ASSERT_TRUE(before.is_connected());
  write_certificate(certificate, key, "second");
  ASSERT_TRUE(certificates->reload());
  TlsClient after(server->address());
  ASSERT_TRUE(after.is_connected());
  EXPECT_EQ(after.common_name(), "second");
  before.send(http_request("POST", "/", "still here"));
  EXPECT_THAT(before.read_until("still here"), EndsWith("still here"));

  std::ofstream(certificate, std::ios::trunc) << "no certificate";
  const Status bad = certificates->reload();
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("gateway.tls.certificate: " + certificate));
  TlsClient kept(server->address());
  ASSERT_TRUE(kept.is_connected());
  EXPECT_EQ(kept.common_name(), "second");
}

TEST_F(HttpTlsTest, WrongFilesAreNamed) {
  EXPECT_THAT(TlsCertificates::load(folder + "/none.pem", key).error().message,
              HasSubstr("gateway.tls.certificate: " + folder + "/none.pem"));
  EXPECT_THAT(TlsCertificates::load(certificate, certificate).error().message,
              HasSubstr("gateway.tls.key: " + certificate));
  const std::string other = folder + "/other.pem";
  write_certificate(folder + "/unused.pem", other, "other");
  EXPECT_THAT(TlsCertificates::load(certificate, other).error().message, HasSubstr(other));
}

}  // namespace
}  // namespace baton::gateway
