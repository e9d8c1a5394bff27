// Keys and their limits on a manual clock, the keys file as it changes, and who may do what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/exec/manual_executor.h"
#include "gateway/access/access.h"
#include "gateway/access/key_limits.h"
#include "gateway/access/key_ring.h"
#include "gateway/access/key_source.h"

namespace baton::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

class Limits : public ::testing::Test {
 protected:
  std::shared_ptr<KeyLimits> make(KeyQuota quota) {
    return std::make_shared<KeyLimits>(quota, [this] { return executor.now(); });
  }
  static std::string value(const HttpHeaders& headers, std::string_view name) {
    for (const auto& [key, text] : headers) {
      if (key == name) {
        return text;
      }
    }
    return "absent";
  }
  ManualExecutor executor;
};

TEST_F(Limits, RequestsComeBackSteadily) {
  const auto limits = make({.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(LimitLease::begin(limits));
  }
  const auto refused = LimitLease::begin(limits);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().retry, seconds(10));
  EXPECT_THAT(refused.error().message, HasSubstr("6 requests a minute"));
  executor.advance(milliseconds(9'999));
  EXPECT_FALSE(LimitLease::begin(limits));
  executor.advance(milliseconds(1));
  EXPECT_TRUE(LimitLease::begin(limits));
  executor.advance(std::chrono::hours(1));
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(LimitLease::begin(limits));
  }
  EXPECT_FALSE(LimitLease::begin(limits)) << "an hour saves no more than a minute up";
}

TEST_F(Limits, RequestsAtOnceAreBounded) {
  const auto limits = make({.parallel = 2});
  auto first = LimitLease::begin(limits);
  const auto second = LimitLease::begin(limits);
  ASSERT_TRUE(first && second);
  const auto third = LimitLease::begin(limits);
  ASSERT_FALSE(third);
  EXPECT_THAT(third.error().message, HasSubstr("2 requests in work"));
  EXPECT_GE(third.error().retry, seconds(1));
  first->reset();
  EXPECT_TRUE(LimitLease::begin(limits));
}

TEST_F(Limits, TokensAreReservedAndSettledWithWhatCame) {
  const auto limits = make({.tokens_per_minute = 600});
  auto lease = *LimitLease::begin(limits);
  EXPECT_FALSE(lease->reserve(100, 400));
  EXPECT_EQ(value(lease->headers(), "x-ratelimit-remaining-tokens"), "200");
  auto other = *LimitLease::begin(limits);
  const auto refused = other->reserve(100, 300);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry, seconds(10));  // 100 tokens are missing
  other.reset();
  EXPECT_EQ(value(limits->headers(), "x-ratelimit-remaining-tokens"), "200");
  lease->use(150);
  lease.reset();
  EXPECT_EQ(value(limits->headers(), "x-ratelimit-remaining-tokens"), "450");
}

TEST_F(Limits, MoreThanReservedIsDebt) {
  const auto limits = make({.tokens_per_minute = 600});
  auto lease = *LimitLease::begin(limits);
  EXPECT_FALSE(lease->reserve(100, 100'000));  // a minute's worth is what can be reserved
  lease->use(1200);                            // a running answer is never cut
  lease.reset();
  EXPECT_EQ(value(limits->headers(), "x-ratelimit-remaining-tokens"), "0");
  const auto refused = (*LimitLease::begin(limits))->reserve(1, 1);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry, milliseconds(60'100));
}

TEST_F(Limits, APromptThatCanNeverPassSaysSo) {
  const auto limits = make({.tokens_per_minute = 600});
  const auto refused = (*LimitLease::begin(limits))->reserve(601, 700);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->retry, milliseconds(0));
  const ApiError error = to_api_error(*refused);
  EXPECT_EQ(error.status, 429);
  EXPECT_EQ(error.should_retry, false);
}

TEST_F(Limits, RefusalsHaveWholeSecondsAndMilliseconds) {
  const ApiError error = to_api_error(LimitRefusal{"x", milliseconds(1)});
  EXPECT_EQ(error.status, 429);
  EXPECT_EQ(error.code, "rate_limit_exceeded");
  EXPECT_EQ(error.retry_after_s, 1U);
  EXPECT_EQ(error.retry_after_ms, 1U);
  EXPECT_EQ(to_api_error(LimitRefusal{"x", milliseconds(1001)}).retry_after_s, 2U);
}

TEST_F(Limits, HeadersAreThoseOfOpenAi) {
  const auto limits = make({.requests_per_minute = 60, .tokens_per_minute = 60'000});
  EXPECT_EQ(value(limits->headers(), "x-ratelimit-reset-requests"), "0ms");
  auto lease = *LimitLease::begin(limits);
  lease->reserve(10, 60'000);
  const HttpHeaders headers = limits->headers();
  EXPECT_EQ(headers.size(), 6U);
  EXPECT_EQ(value(headers, "x-ratelimit-limit-requests"), "60");
  EXPECT_EQ(value(headers, "x-ratelimit-remaining-requests"), "59");
  EXPECT_EQ(value(headers, "x-ratelimit-reset-requests"), "1s");
  EXPECT_EQ(value(headers, "x-ratelimit-limit-tokens"), "60000");
  EXPECT_EQ(value(headers, "x-ratelimit-remaining-tokens"), "0");
  EXPECT_EQ(value(headers, "x-ratelimit-reset-tokens"), "1m0s");
  EXPECT_TRUE(make({.parallel = 3})->headers().empty());
}

// ---- keys

ApiKeyEntry entry(const std::string& name, const std::string& key) {
  ApiKeyEntry entry;
  entry.name = name;
  entry.sha256 = to_hex(sha256(key));
  return entry;
}

TEST_F(Limits, HashIsSha256) {
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(Limits, FindsKeysByTheirHash) {
  KeyRing ring([this] { return executor.now(); });
  EXPECT_TRUE(ring.is_open());
  ring.set({entry("a", "key-a"), entry("b", "key-b")});
  EXPECT_FALSE(ring.is_open());
  ASSERT_NE(ring.find("key-b"), nullptr);
  EXPECT_EQ(ring.find("key-b")->name, "b");
  EXPECT_EQ(ring.find("key-c"), nullptr);
  EXPECT_EQ(ring.find(entry("a", "key-a").sha256), nullptr) << "the hash is no key";
}

TEST_F(Limits, WhatAKeyHasUsedIsCountedByItsName) {
  Metrics metrics;
  KeyRing ring([this] { return executor.now(); }, &metrics);
  ApiKeyEntry limited = entry("team", "key-a");
  limited.parallel = 1;
  ring.set({limited});
  const auto key = ring.find("key-a");
  {
    const auto lease = *LimitLease::begin(key->limits);
    lease->use(12);
    EXPECT_FALSE(LimitLease::begin(key->limits));
  }
  const std::string text = metrics.to_text();
  EXPECT_THAT(text, HasSubstr("baton_key_requests_total{key=\"team\"} 2"));
  EXPECT_THAT(text, HasSubstr("baton_key_refused_total{key=\"team\"} 1"));
  EXPECT_THAT(text, HasSubstr("baton_key_tokens_total{key=\"team\"} 12"));
}

TEST_F(Limits, AKeyThatStaysKeepsWhatItHasUsed) {
  KeyRing ring([this] { return executor.now(); });
  ApiKeyEntry limited = entry("a", "key-a");
  limited.requests_per_minute = 2;
  ring.set({limited});
  ASSERT_TRUE(LimitLease::begin(ring.find("key-a")->limits));
  limited.name = "renamed";
  limited.requests_per_minute = 100;
  ring.set({entry("b", "key-b"), limited});
  EXPECT_EQ(value(ring.find("key-a")->limits->headers(), "x-ratelimit-remaining-requests"), "1");
  ring.set({entry("b", "key-b")});
  EXPECT_EQ(ring.find("key-a"), nullptr);
}

class KeyAccess : public Limits {
 protected:
  KeyAccess() {
    ApiKeyEntry flex = entry("flex", "key-flex");
    flex.tiers = {"flex", "default"};
    flex.models = {"m"};
    ApiKeyEntry admin = entry("admin", "key-admin");
    admin.admin = true;
    ring.set({flex, admin});
  }
  ApiResult<Caller> ask(const std::string& path, const std::string& header = "") {
    HttpRequest request;
    request.path = path;
    if (!header.empty()) {
      request.headers.emplace_back("authorization", header);
    }
    return authenticate(ring, request, access_of(path));
  }
  int status(const std::string& path, const std::string& header = "") {
    const auto caller = ask(path, header);
    return caller ? 200 : caller.error().status;
  }
  KeyRing ring{[this] { return executor.now(); }};
};

TEST_F(KeyAccess, PathsNeedWhatTheyShould) {
  for (const char* path : {"/health", "/livez", "/readyz"}) {
    EXPECT_EQ(status(path), 200) << path;
  }
  for (const char* path : {"/v1/models", "/v1/chat/completions", "/v1/completions", "/tokenize"}) {
    EXPECT_EQ(status(path), 401) << path;
    EXPECT_EQ(status(path, "Bearer key-flex"), 200) << path;
  }
  for (const char* path : {"/baton/status", "/v1/baton/nodes/d0/drain"}) {
    EXPECT_EQ(status(path), 401) << path;
    EXPECT_EQ(status(path, "Bearer key-flex"), 403) << path;
    EXPECT_EQ(status(path, "Bearer key-admin"), 200) << path;
  }
}

TEST_F(KeyAccess, OnlyAWholeBearerKeyCounts) {
  EXPECT_EQ(status("/v1/models", "bearer key-flex"), 200);
  EXPECT_EQ(status("/v1/models", "BEARER   key-flex"), 200);
  for (const char* header : {"Bearer",
                             "Bearer ",
                             "Bearer    ",
                             "key-flex",
                             "Basic key-flex",
                             "Bearer key-fle",
                             "Bearer key-flex ",
                             "Bearer key-flexx"}) {
    const auto caller = ask("/v1/models", header);
    ASSERT_FALSE(caller) << header;
    EXPECT_EQ(caller.error().status, 401);
    EXPECT_EQ(caller.error().code, "invalid_api_key");
    EXPECT_EQ(caller.error().type, "invalid_request_error");
    EXPECT_THAT(caller.error().message, Not(HasSubstr("flex"))) << "a key must not be repeated";
  }
}

TEST_F(KeyAccess, TiersAndModelsOfAKey) {
  const Caller flex = *ask("/v1/models", "Bearer key-flex");
  EXPECT_EQ(flex.tier(std::nullopt), Tier::Flex);
  EXPECT_EQ(flex.tier(Tier::Default), Tier::Default);
  const auto refused = flex.tier(Tier::Priority);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 403);
  EXPECT_EQ(refused.error().param, "service_tier");
  EXPECT_TRUE(flex.may_use_model("m"));
  EXPECT_FALSE(flex.may_use_model("other"));
  const Caller anybody;
  EXPECT_EQ(anybody.tier(std::nullopt), Tier::Default);
  EXPECT_EQ(anybody.tier(Tier::Priority), Tier::Priority);
  EXPECT_TRUE(anybody.may_use_model("other"));
  EXPECT_EQ(*anybody.begin(), nullptr);
}

// ---- the keys file

class Source : public ::testing::Test {
 protected:
  Source() { write("key-a"); }
  ~Source() override { std::filesystem::remove(path); }
  void write(const std::string& key) {
    put("keys: [{name: a, sha256: " + to_hex(sha256(key)) + "}]");
  }
  void put(const std::string& text) {
    std::ofstream(path + ".new", std::ios::trunc) << text;
    std::filesystem::rename(path + ".new", path);  // another inode, whatever the clock says
  }

  ManualExecutor executor;
  std::ostringstream lines;
  const Logger log = *Logger::create({"info", "text", "test"}, &lines);
  KeyRing ring{[this] { return executor.now(); }};
  const std::string path = ::testing::TempDir() + "/baton_source_" + std::to_string(::getpid());
};

TEST_F(Source, FollowsTheFile) {
  KeySource source(executor, ring, log, {entry("fixed", "key-fixed")}, path);
  ASSERT_TRUE(source.start());
  EXPECT_NE(ring.find("key-a"), nullptr);
  EXPECT_NE(ring.find("key-fixed"), nullptr);
  write("key-b");
  executor.advance(seconds(1));
  EXPECT_EQ(ring.find("key-a"), nullptr);
  EXPECT_NE(ring.find("key-b"), nullptr);
  EXPECT_NE(ring.find("key-fixed"), nullptr);
}

TEST_F(Source, ABadFileChangesNothingAndIsToldOnce) {
  KeySource source(executor, ring, log, {}, path);
  ASSERT_TRUE(source.start());
  const std::vector<std::string> bad{
      "keys: [{name: a}]", "keys: []", "", "keys: [", "keys: [{name: a, sha256: my-secret-key}]"};
  for (const std::string& text : bad) {
    const auto before = log.warnings();
    put(text);
    executor.advance(seconds(5));
    EXPECT_EQ(log.warnings(), before + 1) << text;
    EXPECT_NE(ring.find("key-a"), nullptr) << text;
  }
  std::filesystem::remove(path);
  executor.advance(seconds(5));
  EXPECT_NE(ring.find("key-a"), nullptr) << "a file that is gone opens no door";
  EXPECT_FALSE(ring.is_open());
  EXPECT_THAT(lines.str(), HasSubstr("the keys stay as they were"));
  EXPECT_THAT(lines.str(), Not(HasSubstr("my-secret-key")));
}

TEST_F(Source, KeysOfTheConfigurationComeAndGoButNeverTheLast) {
  KeySource source(executor, ring, log, {entry("fixed", "key-fixed")}, "");
  ASSERT_TRUE(source.start());
  source.reload({entry("other", "key-other")});
  EXPECT_EQ(ring.find("key-fixed"), nullptr);
  EXPECT_NE(ring.find("key-other"), nullptr);
  source.reload(std::vector<ApiKeyEntry>{});
  EXPECT_NE(ring.find("key-other"), nullptr);
  EXPECT_FALSE(ring.is_open()) << "an empty list lets everybody in";
  EXPECT_THAT(lines.str(), HasSubstr("the keys stay as they were"));
}

TEST_F(Source, WrongAtTheStartIsAnError) {
  put("keys: []");
  EXPECT_FALSE(KeySource(executor, ring, log, {}, path).start());
  EXPECT_FALSE(KeySource(executor, ring, log, {}, path + ".none").start());
  write("key-a");
  EXPECT_THAT(KeySource(executor, ring, log, {entry("a", "key-x")}, path).start().error().message,
              HasSubstr("the name of two keys"));
}

}  // namespace
}  // namespace baton::gateway
