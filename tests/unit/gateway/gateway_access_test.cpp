// A whole gateway with keys, tiers, deadlines and TLS.
#include <fstream>

#include "gateway/access/key_ring.h"
#include "tests/support/tls_client.h"
#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

const std::string kBearer = "Authorization: Bearer key-user\r\n";
const std::string kAdmin = "Authorization: Bearer key-admin\r\n";

class GatewayAccess : public GatewayTest {
 protected:
  GatewayAccess() {
    ApiKeyEntry user;
    user.name = "user";
    user.sha256 = to_hex(sha256("key-user"));
    ApiKeyEntry admin;
    admin.name = "admin";
    admin.sha256 = to_hex(sha256("key-admin"));
    admin.admin = true;
    config.gateway.keys = {user, admin};
  }
  ApiKeyEntry& user() { return config.gateway.keys[0]; }
  RawReply ask(const std::string& body, const std::string& headers = kBearer) {
    return post("/v1/completions", body, headers);
  }
};

TEST_F(GatewayAccess, NoAnswerWithoutAKey) {
  start_pair();
  for (const std::string headers : {"", "Authorization: Bearer nonsense\r\n"}) {
    const RawReply reply = ask(completion(), headers + "Origin: https://page.example\r\n");
    EXPECT_EQ(reply.status, 401);
    EXPECT_EQ(at(reply.body, "/error/code"), "invalid_api_key");
    EXPECT_EQ(at(reply.body, "/error/type"), "invalid_request_error");
    EXPECT_EQ(at(reply.body, "/error/param"), "null");
    EXPECT_EQ(reply.header("access-control-allow-origin"), "*");
    EXPECT_THAT(reply.body, Not(HasSubstr("nonsense")));
  }
  EXPECT_EQ(counts("p0").prefills, 0U);
  EXPECT_EQ(ask(completion()).status, 200);
}

// Who has no key is told so before the body, which may be large, is read.
TEST_F(GatewayAccess, TheBodyOfAStrangerIsNotRead) {
  start_pair();
  const auto head = [](const std::string& key) {
    return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + key +
           "Expect: 100-continue\r\nContent-Length: 30000000\r\n\r\n";
  };
  RawHttpClient stranger(gateway->http_address());
  stranger.send(head("Authorization: Bearer nonsense\r\n"));
  const RawReply reply = stranger.read_reply();
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(at(reply.body, "/error/code"), "invalid_api_key");
  EXPECT_EQ(reply.header("access-control-allow-origin"), "*");
  EXPECT_EQ(reply.header("connection"), "close");
  EXPECT_TRUE(stranger.wait_closed());
  RawHttpClient known(gateway->http_address());
  known.send(head(kBearer));
  EXPECT_TRUE(known.wait_for("HTTP/1.1 100 Continue\r\n\r\n"));
}

TEST_F(GatewayAccess, PreflightAndHealthNeedNoKey) {
  start_pair();
  const RawReply preflight = http_call(gateway->http_address(),
                                       "OPTIONS",
                                       "/v1/chat/completions",
                                       "",
                                       "Origin: https://page.example\r\n"
                                       "Access-Control-Request-Headers: authorization\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "*");
  EXPECT_EQ(preflight.header("access-control-allow-headers"), "authorization");
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(get("/livez").status, 200);
}

TEST_F(GatewayAccess, StatusAndDrainingAreForAdmins) {
  start_pair();
  const auto call =
      [this](const std::string& method, const std::string& path, const std::string& headers) {
        return http_call(gateway->http_address(), method, path, "", headers).status;
      };
  EXPECT_EQ(call("GET", "/baton/status", ""), 401);
  EXPECT_EQ(call("GET", "/baton/status", kBearer), 403);
  EXPECT_EQ(call("GET", "/baton/status", kAdmin), 200);
  for (const std::string path : {"/baton/requests", "/baton/requests/0123456789abcdef"}) {
    EXPECT_EQ(call("GET", path, ""), 401) << path;
    EXPECT_EQ(call("GET", path, kBearer), 403) << path;
  }
  EXPECT_EQ(call("GET", "/baton/requests", kAdmin), 200);
  const std::string drain = "/v1/baton/nodes/d0/drain";
  EXPECT_EQ(call("POST", drain, ""), 401);
  EXPECT_EQ(call("POST", drain, kBearer), 403);
  EXPECT_EQ(counts("d0").drains, 0U);
  EXPECT_EQ(call("POST", drain, kAdmin), 200);
}

TEST_F(GatewayAccess, ModelsOutsideTheKeyDoNotExist) {
  user().models = {"another"};
  start_pair();
  const RawReply reply = ask(completion());
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(at(reply.body, "/error/code"), "model_not_found");
  const auto models = http_call(gateway->http_address(), "GET", "/v1/models", "", kBearer);
  EXPECT_EQ(at(models.body, "/data"), "[]");
  EXPECT_EQ(http_call(gateway->http_address(), "GET", "/v1/models/scripted", "", kBearer).status,
            404);
  EXPECT_EQ(http_call(gateway->http_address(), "GET", "/v1/models/scripted", "", kAdmin).status,
            200);
}

TEST_F(GatewayAccess, EveryReplyTellsTheLimits) {
  user().requests_per_minute = 3;
  user().tokens_per_minute = 120;  // two a second: the clock hardly matters
  start_pair();
  const RawReply good = ask(completion());
  ASSERT_EQ(good.status, 200);
  EXPECT_EQ(good.header("x-ratelimit-limit-requests"), "3");
  EXPECT_EQ(good.header("x-ratelimit-remaining-requests"), "2");
  EXPECT_EQ(good.header("x-ratelimit-limit-tokens"), "120");
  EXPECT_EQ(good.header("x-ratelimit-remaining-tokens"),
            "18");  // less 2 of the prompt and max_tokens
  EXPECT_THAT(good.header("x-ratelimit-reset-requests"), HasSubstr("s"));
  const RawReply bad = ask("{");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.header("x-ratelimit-remaining-requests"), "1");
  const RawReply stream = ask(completion(R"(,"stream":true)"));
  ASSERT_EQ(stream.status, 200);
  EXPECT_EQ(stream.header("x-ratelimit-remaining-requests"), "0");
  // Of the 102 tokens reserved for the first answer 14 were used, of the second's nothing yet.
  const int left = std::stoi(stream.header("x-ratelimit-remaining-tokens"));
  EXPECT_GE(left, 4);
  EXPECT_LE(left, 18);
  const RawReply over = ask(completion());
  EXPECT_EQ(over.status, 429);
  EXPECT_EQ(at(over.body, "/error/code"), "rate_limit_exceeded");
  EXPECT_GE(std::stoi(over.header("retry-after")), 1);
  EXPECT_GE(std::stoi(over.header("retry-after-ms")), 1);
  EXPECT_EQ(over.header("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(ask(completion(), kAdmin).header("x-ratelimit-limit-requests"), "");
}

TEST_F(GatewayAccess, RequestsAtOnceEndWithTheirClients) {
  user().parallel = 1;
  NodeScript slow;
  slow.step = seconds(30);
  start_pair({}, slow);
  {
    RawHttpClient running(gateway->http_address());
    running.send(http_request("POST", "/v1/completions", completion(R"(,"stream":true)"), kBearer));
    ASSERT_TRUE(running.wait_for("data: "));
    const RawReply second = ask(completion());
    EXPECT_EQ(second.status, 429);
    EXPECT_EQ(second.header("retry-after"), "1");
  }
  // The client has left; its place is free as soon as that is noticed.
  RawReply next;
  do {
    next = ask(R"({"model":"scripted","prompt":"hi","max_tokens":1})");
  } while (next.status == 429);
  EXPECT_EQ(next.status, 200);
}

TEST_F(GatewayAccess, KeysAreReadAgain) {
  const std::string path = ::testing::TempDir() + "/baton_gateway_keys";
  const auto write = [&](const std::string& key) {
    std::ofstream(path, std::ios::trunc)
        << "keys: [{name: file, sha256: " << to_hex(sha256(key)) << "}]";
  };
  write("key-old");
  config.gateway.keys_file = path;
  start_pair();
  EXPECT_EQ(ask(completion(), "Authorization: Bearer key-old\r\n").status, 200);
  write("key-new");
  gateway->reload(config);
  EXPECT_EQ(ask(completion(), "Authorization: Bearer key-old\r\n").status, 401);
  EXPECT_EQ(ask(completion(), "Authorization: Bearer key-new\r\n").status, 200);
  EXPECT_EQ(ask(completion()).status, 200);
}

TEST_F(GatewayAccess, TheReplyNamesTheTier) {
  user().tiers = {"flex", "default"};
  start_pair();
  const auto tier = [this](const std::string& fields, const std::string& key) {
    return at(ask(completion(fields), key).body, "/service_tier");
  };
  EXPECT_EQ(tier("", kBearer), "absent");
  EXPECT_EQ(tier(R"(,"service_tier":"auto")", kBearer), "flex");
  EXPECT_EQ(tier(R"(,"service_tier":"default")", kBearer), "default");
  EXPECT_EQ(tier(R"(,"service_tier":"auto")", kAdmin), "default");
  EXPECT_EQ(tier(R"(,"service_tier":"priority")", kAdmin), "priority");
  const RawReply refused = ask(completion(R"(,"service_tier":"priority")"));
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(at(refused.body, "/error/param"), "service_tier");
  const RawReply unknown = ask(completion(R"(,"service_tier":"gold")"));
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(at(unknown.body, "/error/param"), "service_tier");
  const RawReply stream = ask(completion(R"(,"stream":true,"service_tier":"default")"));
  EXPECT_EQ(at(sse_events(stream.body).front(), "/service_tier"), "default");
}

TEST_F(GatewayAccess, ServesTls) {
  const std::string certificate = ::testing::TempDir() + "/baton_gateway_certificate.pem";
  const std::string key = ::testing::TempDir() + "/baton_gateway_key.pem";
  testing::write_certificate(certificate, key, "gateway");
  config.gateway.tls.certificate = certificate;
  config.gateway.tls.key = key;
  start();
  add("p0");
  add("d0");
  testing::TlsClient client(gateway->http_address());
  ASSERT_TRUE(client.is_connected());
  const auto ask_tls = [&] {
    client.send(http_request("POST",
                             "/v1/completions",
                             completion(R"(,"stream":true)"),
                             "Content-Type: application/json\r\n" + kBearer));
    return client.read_until("\r\n0\r\n\r\n");
  };
  std::string ready;
  while (ready.find("\"ready\"") == std::string::npos) {
    client.send(http_request("GET", "/readyz"));
    ready = client.read_until("}");
    ASSERT_FALSE(ready.empty());
  }
  EXPECT_THAT(ask_tls(), HasSubstr("data: [DONE]"));
  testing::write_certificate(certificate, key, "renewed");
  gateway->reload(config);
  EXPECT_EQ(testing::TlsClient(gateway->http_address()).common_name(), "renewed");
}

}  // namespace
}  // namespace baton::gateway
