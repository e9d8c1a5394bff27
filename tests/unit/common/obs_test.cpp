// Log lines, metrics and the admin server.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>

#include "common/base/host_port.h"
#include "common/obs/admin_server.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Logger, TextLineIsOneLine) {
  std::ostringstream out;
  const auto log = Logger::create({.level = "info", .format = "text", .process = "p0"}, &out);
  ASSERT_TRUE(log);
  log->info("node {} said {}", 7, "a\nb\x01");
  log->debug("hidden");
  EXPECT_THAT(out.str(),
              MatchesRegex("....-..-..T..:..:......Z info  p0 node 7 said a\\\\nb\\\\u0001\n"));
}

TEST(Logger, JsonLineIsEscaped) {
  std::ostringstream out;
  const auto log = Logger::create({.level = "warn", .format = "json", .process = "d\"0"}, &out);
  ASSERT_TRUE(log);
  log->warn("a \"quoted\" back\\slash\n");
  log->info("hidden");
  EXPECT_THAT(out.str(),
              MatchesRegex("\\{\"time\":\"[^\"]*\",\"level\":\"warn\",\"process\":\"d\\\\\"0\","
                           "\"message\":\"a \\\\\"quoted\\\\\" back\\\\\\\\slash\\\\n\"\\}\n"));
  EXPECT_EQ(log->warnings(), 1U);
}

TEST(Logger, RefusesUnknownNames) {
  EXPECT_EQ(Logger::create({.level = "loud"}).error().message,
            "unknown log level 'loud': trace, debug, info, warn or error");
  EXPECT_EQ(Logger::create({.format = "xml"}).error().message,
            "unknown log format 'xml': text or json");
}

TEST(Metrics, PrintsWhatWasCounted) {
  Metrics metrics;
  const auto tokens = metrics.counter("baton_tokens_total", "Tokens.", {{"phase", "decode"}});
  tokens.add();
  tokens.add(2);
  metrics.counter("baton_tokens_total", "Tokens.", {{"phase", "decode"}}).add();
  EXPECT_EQ(tokens.value(), 4);
  const auto blocks = metrics.gauge("baton_blocks", "Blocks.");
  metrics.before_print([blocks] { blocks.set(12); });
  const auto wait = metrics.histogram("baton_wait_seconds", "Wait.", {0.1, 1});
  wait.observe(0.5);
  const auto text = metrics.to_text();
  EXPECT_THAT(text, HasSubstr("baton_tokens_total{phase=\"decode\"} 4"));
  EXPECT_THAT(text, HasSubstr("baton_blocks 12"));
  EXPECT_THAT(text, HasSubstr("baton_wait_seconds_bucket{le=\"1\"} 1"));
  Counter().add();  // a handle without a metric drops it
}

TEST(AdminServer, AnswersAndStops) {
  Metrics metrics;
  metrics.counter("baton_x_total", "X.").add();
  std::atomic<bool> ready = false;
  AdminHandlers handlers;
  handlers.metrics = [&] { return metrics.to_text(); };
  handlers.ready = [&] { return AdminHandlers::Answer{ready, ready ? "ready" : "no gateway yet"}; };
  auto server = AdminServer::start("127.0.0.1:0", handlers);
  ASSERT_TRUE(server) << server.error().message;
  const auto address = HostPort::parse((*server)->address());
  ASSERT_TRUE(address);
  ASSERT_NE(address->port, 0);
  httplib::Client client(address->host, address->port);
  EXPECT_THAT(client.Get("/metrics")->body, HasSubstr("baton_x_total 1"));
  EXPECT_EQ(client.Get("/livez")->status, 200);
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/readyz")->status, 503);
  EXPECT_EQ(client.Get("/readyz")->body, "no gateway yet\n");
  ready = true;
  EXPECT_EQ(client.Get("/readyz")->status, 200);
  EXPECT_EQ(client.Get("/status")->status, 404);

  const auto busy = AdminServer::start((*server)->address(), handlers);
  ASSERT_FALSE(busy);
  EXPECT_EQ(busy.error().code, ErrorCode::IoError);
  EXPECT_EQ(busy.error().message,
            "cannot listen on " + (*server)->address() + " for metrics: Address already in use");

  (*server)->stop();
  (*server)->stop();
  EXPECT_FALSE(client.Get("/livez"));
}

TEST(AdminServer, SilentClientsDoNotKeepOthersOut) {
  auto server = AdminServer::start("127.0.0.1:0", {});
  ASSERT_TRUE(server) << server.error().message;
  const auto address = HostPort::parse((*server)->address());
  std::vector<int> silent;
  for (int i = 0; i < 8; ++i) {
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(address->port);
    target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    silent.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(silent.back(), reinterpret_cast<sockaddr*>(&target), sizeof(target)), 0);
  }
  httplib::Client client(address->host, address->port);
  const auto live = client.Get("/livez");
  ASSERT_TRUE(live);
  EXPECT_EQ(live->status, 200);
  for (const int socket : silent) {
    ::close(socket);
  }
}

TEST(AdminServer, RefusesBadAddress) {
  EXPECT_EQ(AdminServer::start("nowhere", {}).error().code, ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace baton
