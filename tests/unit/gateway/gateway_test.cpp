// A whole gateway: answers, streams, failures and what clients do.
#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

TEST_F(GatewayTest, WholeChat) {
  start_pair();
  const RawReply reply = post("/v1/chat/completions", chat(), "X-Request-ID: my-id\r\n");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/object"), "chat.completion");
  EXPECT_EQ(at(reply.body, "/choices/0/message/content"), "Hello world");
  EXPECT_EQ(at(reply.body, "/choices/0/message/role"), "assistant");
  EXPECT_EQ(at(reply.body, "/choices/0/finish_reason"), "stop");
  EXPECT_EQ(at(reply.body, "/usage/completion_tokens"), "12");
  EXPECT_EQ(at(reply.body, "/usage/prompt_tokens_details/cached_tokens"), "3");
  EXPECT_EQ(at(reply.body, "/baton"), "absent");
  EXPECT_EQ(reply.header("x-request-id"), "my-id");
  EXPECT_EQ(reply.header("access-control-allow-origin"), "*");
  // The template's control tokens are tokens, not text.
  const GenerateRequest request = last_request("d0");
  EXPECT_EQ(request.prompt.front(), testing::kByteStart);
  EXPECT_EQ(std::to_string(request.prompt.size()), at(reply.body, "/usage/prompt_tokens"));
  EXPECT_EQ(request.max_tokens, 4096 - request.prompt.size());
}

TEST_F(GatewayTest, UserTextCannotBecomeControlTokens) {
  start_pair();
  const RawReply reply =
      post("/v1/chat/completions",
           R"({"model":"scripted","messages":[{"role":"user","content":"<|im_end|>"}]})");
  ASSERT_EQ(reply.status, 200);
  const GenerateRequest request = last_request("d0");
  EXPECT_EQ(std::count(request.prompt.begin(), request.prompt.end(), testing::kByteEnd), 1);
}

TEST_F(GatewayTest, StreamedChat) {
  start_pair();
  const RawReply reply = post("/v1/chat/completions",
                              chat(R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.complete);
  EXPECT_EQ(reply.header("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(reply.header("cache-control"), "no-cache");
  const auto events = sse_events(reply.body);
  ASSERT_GE(events.size(), 5U);
  EXPECT_EQ(at(events[0], "/choices/0/delta/role"), "assistant");
  EXPECT_EQ(at(events[0], "/choices/0/delta/content"), "");
  EXPECT_EQ(at(events[0], "/choices/0/finish_reason"), "null");
  std::string text;
  for (std::size_t i = 1; i + 3 < events.size(); ++i) {
    EXPECT_EQ(at(events[i], "/choices/0/finish_reason"), "null");
    EXPECT_EQ(at(events[i], "/usage"), "null");
    EXPECT_EQ(at(events[i], "/id"), at(events[0], "/id"));
    text += at(events[i], "/choices/0/delta/content");
  }
  EXPECT_EQ(text, "Hello world");
  EXPECT_EQ(at(events[events.size() - 3], "/choices/0/finish_reason"), "stop");
  EXPECT_EQ(at(events[events.size() - 3], "/choices/0/delta"), "{}");
  EXPECT_EQ(at(events[events.size() - 2], "/choices"), "[]");
  EXPECT_EQ(at(events[events.size() - 2], "/usage/completion_tokens"), "12");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(GatewayTest, StreamWithoutUsageHasNone) {
  start_pair();
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_THAT(reply.body, Not(HasSubstr("usage")));
}

TEST_F(GatewayTest, FiguresWhenAsked) {
  start_pair();
  for (const char* stream : {"", R"(,"stream":true)"}) {
    const RawReply reply = post("/v1/chat/completions", chat(stream), "X-Baton-Figures: 1\r\n");
    const std::string json = *stream == '\0' ? reply.body : sse_events(reply.body).end()[-2];
    EXPECT_EQ(at(json, "/baton/prefill_node"), "p0");
    EXPECT_EQ(at(json, "/baton/decode_node"), "d0");
    EXPECT_EQ(at(json, "/baton/kv_bytes_moved"), "1234");
    EXPECT_EQ(at(json, "/baton/kv_transport"), "scripted");
    EXPECT_EQ(at(json, "/baton/prefill_ms"), "5.0");
    EXPECT_EQ(at(json, "/baton/transfer_ms"), "0.7");
    EXPECT_EQ(at(json, "/baton/chunks"), "2");
  }
}

TEST_F(GatewayTest, ARequestIsFoundByTheIdOfItsAnswer) {
  start_pair();
  const RawReply reply = post("/v1/chat/completions", chat());
  const std::string id = at(reply.body, "/id");
  const std::string one = get("/baton/requests/" + id).body;
  EXPECT_TRUE(id.ends_with(at(one, "/id"))) << one;
  EXPECT_EQ(at(one, "/how"), "finished");
  EXPECT_EQ(at(one, "/phases/0/name"), "queue");
  EXPECT_EQ(at(one, "/phases/1/node"), "p0");
  EXPECT_EQ(at(one, "/phases/3/name"), "decode");
  EXPECT_EQ(at(get("/baton/requests").body, "/requests/0/id"), at(one, "/id"));
  EXPECT_EQ(get("/baton/requests/chatcmpl-0123456789abcdef").status, 404);
  EXPECT_EQ(get("/baton/requests/").status, 404);
}

TEST_F(GatewayTest, LimitsChangeWhileItRuns) {
  start_pair();
  EXPECT_EQ(post("/v1/chat/completions", chat()).status, 200);
  config.gateway.queue_limit = 0;
  gateway->reload(config);
  EXPECT_EQ(post("/v1/chat/completions", chat()).status, 429);
  config.gateway.queue_limit = 8;
  gateway->reload(config);
  EXPECT_EQ(post("/v1/chat/completions", chat()).status, 200);
}

TEST_F(GatewayTest, CompletionWithTokenIdsAndLogprobs) {
  start_pair();
  const RawReply reply =
      post("/v1/completions",
           R"({"model":"scripted","prompt":[104,105],"max_tokens":3,"return_token_ids":true,)"
           R"("logprobs":1})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/choices/0/text"), "Hel");
  EXPECT_EQ(at(reply.body, "/choices/0/finish_reason"), "length");
  EXPECT_EQ(at(reply.body, "/choices/0/token_ids"), "[72,101,108]");
  EXPECT_EQ(at(reply.body, "/choices/0/prompt_token_ids"), "[104,105]");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/tokens"), R"(["H","e","l"])");
  EXPECT_EQ(at(reply.body, "/choices/0/logprobs/text_offset"), "[0,1,2]");
}

TEST_F(GatewayTest, StopStringAcrossTokensEndsBothWays) {
  NodeScript slow;
  slow.step = milliseconds(2);
  start_pair({}, slow);
  for (const char* stream : {"", R"(,"stream":true)"}) {
    const RawReply reply =
        post("/v1/completions", completion(std::string(R"(,"stop":["o w"])") + stream));
    std::string text;
    if (*stream == '\0') {
      text = at(reply.body, "/choices/0/text");
      EXPECT_EQ(at(reply.body, "/choices/0/finish_reason"), "stop");
    } else {
      for (const std::string& event : sse_events(reply.body)) {
        text += event == "[DONE]" ? "" : at(event, "/choices/0/text");
      }
      EXPECT_EQ(sse_events(reply.body).back(), "[DONE]");
    }
    EXPECT_EQ(text, "Hell");
  }
  wait_counts("d0", [](const testing::NodeCounts& c) { return c.running == 0; });
  EXPECT_EQ(counts("d0").cancels, 2U);
}

TEST_F(GatewayTest, CharactersAreNeverSplit) {
  NodeScript script;
  script.answer = [](const GenerateRequest&) { return testing::byte_tokens("a\xf0\x9f\x98\x80z"); };
  start_pair(script, script);
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_THAT(reply.body, HasSubstr("\"content\":\"\xf0\x9f\x98\x80\""));
  EXPECT_THAT(reply.body, Not(HasSubstr("\xef\xbf\xbd")));
  // Cut inside the character: the broken rest is marked once, at the end.
  const RawReply cut = post("/v1/chat/completions", chat(R"(,"max_tokens":3)"));
  EXPECT_EQ(at(cut.body, "/choices/0/message/content"), "a\xef\xbf\xbd");
}

TEST_F(GatewayTest, ErrorsOfTheDoor) {
  start_pair();
  const RawReply unknown =
      post("/v1/chat/completions", R"({"model":"x","messages":[{"role":"user","content":"h"}]})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(at(unknown.body, "/error/code"), "model_not_found");
  const RawReply broken = post("/v1/chat/completions", R"({"model":)");
  EXPECT_EQ(broken.status, 400);
  EXPECT_THAT(broken.body, HasSubstr("byte 9"));
  const RawReply path = get("/v1/nothing");
  EXPECT_EQ(path.status, 404);
  EXPECT_EQ(at(path.body, "/error/code"), "not_found");
  const RawReply method = get("/v1/chat/completions");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.header("allow"), "POST, OPTIONS");
  const RawReply type = http_call(gateway->http_address(),
                                  "POST",
                                  "/v1/chat/completions",
                                  chat(),
                                  "Content-Type: text/plain\r\n");
  EXPECT_EQ(type.status, 415);
  const RawReply preflight =
      http_call(gateway->http_address(), "OPTIONS", "/v1/chat/completions", "", "Origin: x\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("access-control-allow-origin"), "*");
  EXPECT_EQ(counts("d0").reserves, 0U);
}

TEST_F(GatewayTest, PromptOverTheContextNamesBothLengths) {
  start_pair();
  const RawReply reply =
      post("/v1/completions",
           fmt::format(R"({{"model":"scripted","prompt":"{}"}})", std::string(4097, 'x')));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(at(reply.body, "/error/code"), "context_length_exceeded");
  EXPECT_THAT(reply.body, HasSubstr("4096"));
  EXPECT_THAT(reply.body, HasSubstr("4097"));
  // So long that it is not even tokenized.
  const RawReply huge =
      post("/v1/completions",
           fmt::format(R"({{"model":"scripted","prompt":"{}"}})", std::string(1'000'000, 'x')));
  EXPECT_EQ(huge.status, 400);
  EXPECT_EQ(at(huge.body, "/error/code"), "context_length_exceeded");
  EXPECT_THAT(huge.body, HasSubstr("at least"));
  // One token less than the context leaves room for one.
  const RawReply fits = post("/v1/completions",
                             fmt::format(R"({{"model":"scripted","prompt":"{}","max_tokens":50}})",
                                         std::string(4095, 'x')));
  EXPECT_EQ(at(fits.body, "/usage/completion_tokens"), "1");
}

TEST_F(GatewayTest, TokenOutsideTheVocabularyIsRefused) {
  start_pair();
  const RawReply reply = post("/v1/completions", R"({"model":"scripted","prompt":[1,300]})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(at(reply.body, "/error/param"), "prompt[1]");
}

TEST_F(GatewayTest, ChunkedBodyAndPipelining) {
  start_pair();
  const std::string body = chat();
  RawHttpClient client(gateway->http_address());
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n" +
      fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body) +
      http_request("POST", "/v1/chat/completions", chat(R"(,"stream":true)")) +
      http_request("GET", "/v1/models"));
  EXPECT_EQ(at(client.read_reply().body, "/choices/0/message/content"), "Hello world");
  EXPECT_THAT(client.read_reply().body, HasSubstr("[DONE]"));
  EXPECT_EQ(at(client.read_reply().body, "/data/0/id"), "scripted");
}

TEST_F(GatewayTest, LargeBodyGoesThroughThePool) {
  start_pair();
  const RawReply reply = post("/v1/chat/completions",
                              R"({"model":"scripted","messages":[{"role":"user","content":"hi"}],)"
                              R"("metadata":{"pad":")" +
                                  std::string(300'000, 'x') + R"("}})");
  EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST_F(GatewayTest, BodyOverTheLimitIs413) {
  config.gateway.max_body_mb = 1;
  start_pair();
  const RawReply reply = post("/v1/chat/completions", std::string(3 << 20, 'x'));
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(at(reply.body, "/error/code"), "request_too_large");
}

TEST_F(GatewayTest, NoPairIs503WithRetryAfter) {
  tuning.restart_wait = milliseconds(0);
  start();
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/livez").status, 200);
  const RawReply early =
      post("/v1/chat/completions",
           R"({"model":"configured","messages":[{"role":"user","content":"h"}]})");
  EXPECT_EQ(early.status, 503);
  add("p0");
  add("d0");
  wait_status(200);
  nodes.run_and_wait([this] { cluster->remove("p0"); });
  wait_status(503);
  const RawReply reply = post("/v1/chat/completions", chat());
  EXPECT_EQ(reply.status, 503);
  EXPECT_GE(std::stoi(reply.header("retry-after")), 1);
}

TEST_F(GatewayTest, QueueFullIs429) {
  config.gateway.queue_limit = 1;
  NodeScript slow;
  slow.credits = 1;
  slow.prefill_delay = seconds(30);
  start_pair(slow);
  RawHttpClient running(gateway->http_address());
  running.send(http_request("POST", "/v1/chat/completions", chat()));
  wait_counts("p0", [](const testing::NodeCounts& c) { return c.prefills == 1; });
  RawHttpClient waiting(gateway->http_address());
  waiting.send(http_request("POST", "/v1/chat/completions", chat()));
  while (at(get("/baton/status").body, "/queued") != "1") {
    std::this_thread::yield();
  }
  const RawReply refused = post("/v1/chat/completions", chat());
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(at(refused.body, "/error/code"), "rate_limit_exceeded");
  EXPECT_GE(std::stoi(refused.header("retry-after")), 1);
}

TEST_F(GatewayTest, LeavingClientStopsBothNodes) {
  for (const char* stream : {"", R"(,"stream":true)"}) {
    NodeScript slow;
    slow.prefill_delay = seconds(30);
    start_pair(slow);
    RawHttpClient client(gateway->http_address());
    client.send(http_request("POST", "/v1/chat/completions", chat(stream)));
    wait_counts("p0", [](const testing::NodeCounts& c) { return c.prefills == 1; });
    client.close();
    wait_counts("p0", [](const testing::NodeCounts& c) { return c.cancels == 1; });
    wait_counts("d0",
                [](const testing::NodeCounts& c) { return c.cancels == 1 && c.running == 0; });
    nodes.run_and_wait([this] { cluster.reset(); });
    gateway->stop();
  }
}

TEST_F(GatewayTest, LeavingClientStopsDecode) {
  NodeScript endless;
  endless.step = milliseconds(5);
  endless.answer = [](const GenerateRequest&) { return std::vector<TokenId>(3000, 'x'); };
  start_pair(endless, endless);
  RawHttpClient client(gateway->http_address());
  client.send(http_request("POST", "/v1/chat/completions", chat(R"(,"stream":true)")));
  ASSERT_TRUE(client.wait_for("\"content\":\"x\""));
  client.close();
  wait_counts("d0", [](const testing::NodeCounts& c) { return c.cancels == 1 && c.running == 0; });
}

TEST_F(GatewayTest, SlowReaderIsCutAndItsWorkCancelled) {
  config.gateway.client_buffer_kb = 16;
  tuning.send_buffer_bytes = 4096;
  NodeScript flood;
  flood.tokens_per_event = 20;
  flood.step = milliseconds(5);
  flood.answer = [](const GenerateRequest&) { return std::vector<TokenId>(4000, 'x'); };
  flood.blocks = 100'000;
  start_pair(flood, flood);
  RawHttpClient client(gateway->http_address(), 4096);
  client.send(http_request(
      "POST", "/v1/chat/completions", chat(R"(,"stream":true,"logprobs":true,"top_logprobs":20)")));
  wait_counts("d0", [](const testing::NodeCounts& c) { return c.cancels == 1 && c.running == 0; });
  EXPECT_EQ(gateway->http_stats().slow_cut.load(), 1U);
}

TEST_F(GatewayTest, PrefillDeathBeforeTheFirstByteIsAStatus) {
  config.gateway.max_node_losses = 1;
  NodeScript dying;
  dying.die_on_prefill = true;
  start_pair(dying);
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(reply.status, 502);
  EXPECT_EQ(at(reply.body, "/error/code"), "upstream_unreachable");
  EXPECT_THAT(reply.body, Not(HasSubstr("p0")));
}

TEST_F(GatewayTest, OneDeathTooManyInTheStreamIsAnErrorEvent) {
  config.gateway.max_node_losses = 1;
  NodeScript dying;
  dying.die_at = 5;
  start_pair({}, dying);
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.complete);
  const auto events = sse_events(reply.body);
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(at(events.end()[-2], "/error/code"), "upstream_unreachable");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(GatewayTest, NoPairLeftInTheStreamIsAnErrorEvent) {
  config.gateway.queue_timeout = milliseconds(100);
  NodeScript dying;
  dying.die_at = 5;
  start_pair({}, dying);
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.complete);
  const auto events = sse_events(reply.body);
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(at(events.end()[-2], "/error/code"), "queue_timeout");
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(GatewayTest, NoPairLeftForAWholeReplyIs503) {
  config.gateway.queue_timeout = milliseconds(100);
  NodeScript dying;
  dying.die_at = 5;
  start_pair({}, dying);
  EXPECT_EQ(post("/v1/chat/completions", chat()).status, 503);
}

// ---- failover as the client sees it

// One decode node dies at `index`, another takes over.
class FailoverStream : public GatewayTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  void start_dying(const std::string& text) {
    NodeScript script;
    script.answer = [text](const GenerateRequest&) { return testing::byte_tokens(text); };
    start_pair(script, script);
    script.die_at = GetParam();
    add("d1", script);
    nodes.run_and_wait([this] { cluster->node("d0").script().max_batch = 0; });
    while (at(get("/baton/status").body, "/nodes/2/name") == "absent") {
      std::this_thread::yield();
    }
    // d0 refuses what comes before d1 has died.
    nodes.run_and_wait([this] {
      cluster->node("d0").script().on_reserve = [this] {
        cluster->node("d0").script().max_batch = cluster->node("d1").is_up() ? 0 : 8;
      };
    });
  }
  std::string text_of(const RawReply& reply) {
    std::string text;
    for (const std::string& event : sse_events(reply.body)) {
      const std::string piece = at(event, "/choices/0/delta/content");
      text += piece == "absent" ? "" : piece;
    }
    return text;
  }
};

TEST_P(FailoverStream, TextUsageAndLogprobsAreWhole) {
  start_dying("Hello world");
  const RawReply reply =
      post("/v1/chat/completions",
           chat(R"(,"stream":true,"logprobs":true,"stream_options":{"include_usage":true})"),
           "x-baton-figures: 1\r\n");
  EXPECT_EQ(text_of(reply), "Hello world");
  const auto events = sse_events(reply.body);
  std::string from_logprobs;
  for (const std::string& event : events) {
    for (int i = 0; i < 12; ++i) {
      const std::string token = at(event, fmt::format("/choices/0/logprobs/content/{}/token", i));
      from_logprobs += token == "absent" ? "" : token;
    }
  }
  EXPECT_EQ(from_logprobs, "Hello world");
  EXPECT_EQ(at(events.end()[-2], "/usage/completion_tokens"), "12");
  EXPECT_EQ(at(events.end()[-2], "/usage/prompt_tokens_details/cached_tokens"), "3");
  EXPECT_EQ(at(events.end()[-3], "/choices/0/finish_reason"), "stop");
  EXPECT_THAT(reply.body, HasSubstr("\"failovers\":1"));
  EXPECT_THAT(metrics().body, HasSubstr("baton_failovers_total{reason=\"node_died\"} 1"));
}

TEST_P(FailoverStream, WholeRepliesToo) {
  start_dying("Hello world");
  const RawReply reply = post("/v1/chat/completions", chat());
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(at(reply.body, "/choices/0/message/content"), "Hello world");
  EXPECT_EQ(at(reply.body, "/usage/completion_tokens"), "12");
}

TEST_P(FailoverStream, StopStringOverTheGap) {
  start_dying("Hello world");
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true,"stop":["lo wor"])"));
  EXPECT_EQ(text_of(reply), "Hel");
  EXPECT_EQ(sse_events(reply.body).back(), "[DONE]");
}

TEST_P(FailoverStream, CharactersOverTheGap) {
  start_dying("h\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac!");
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_EQ(text_of(reply), "h\xc3\xa9\xf0\x9f\x98\x80\xe2\x82\xac!");
}

INSTANTIATE_TEST_SUITE_P(Indices, FailoverStream, ::testing::Values(1, 2, 4, 5, 6, 8, 10));

TEST_F(GatewayTest, SilentNodeIsAnError) {
  start_pair();
  nodes.run_and_wait([this] {
    cluster->node("p0").script().mute = true;
    cluster->node("p0").script().heartbeats = false;
  });
  const RawReply reply = post("/v1/chat/completions", chat());
  EXPECT_EQ(reply.status, 502);
}

TEST_F(GatewayTest, RepeatedAndDisorderedTokensGiveTheSameText) {
  NodeScript odd;
  odd.repeat_events = true;
  odd.first_token_last = true;
  start_pair(odd, odd);
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  std::string text;
  for (const std::string& event : sse_events(reply.body)) {
    const std::string piece = at(event, "/choices/0/delta/content");
    text += piece == "absent" ? "" : piece;
  }
  EXPECT_EQ(text, "Hello world");
}

TEST_F(GatewayTest, SilenceIsFilledWithComments) {
  config.gateway.keepalive_ms = 50;
  NodeScript slow;
  slow.prefill_delay = milliseconds(300);
  start_pair(slow);
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"stream":true)"));
  EXPECT_THAT(reply.body, HasSubstr(": keep-alive\n\n"));
  EXPECT_EQ(sse_events(reply.body).back(), "[DONE]");
}

TEST_F(GatewayTest, ModelsStatusAndMetrics) {
  start_pair();
  const RawReply models = get("/v1/models");
  EXPECT_EQ(at(models.body, "/object"), "list");
  EXPECT_EQ(at(models.body, "/data/0/id"), "scripted");
  EXPECT_EQ(at(models.body, "/data/0/created"), "1700000000");
  EXPECT_EQ(at(get("/v1/models/scripted").body, "/object"), "model");
  EXPECT_EQ(get("/v1/models/org%2Fname").status, 404);
  EXPECT_EQ(get("/v1/models/org/name").status, 404);
  const RawReply status = get("/baton/status");
  EXPECT_EQ(at(status.body, "/nodes/0/name"), "d0");
  EXPECT_EQ(at(status.body, "/nodes/0/role"), "decode");
  EXPECT_EQ(at(status.body, "/nodes/1/state"), "alive");
  EXPECT_EQ(at(status.body, "/ready"), "true");
  EXPECT_EQ(post("/v1/chat/completions", chat()).status, 200);
  EXPECT_EQ(get("/metrics").status, 404);
  const RawReply page = metrics();
  EXPECT_THAT(page.body, HasSubstr("baton_requests_total{status=\"finished\"} 1"));
  EXPECT_THAT(page.body, HasSubstr("baton_time_to_first_token_seconds_bucket"));
  EXPECT_THAT(page.body, HasSubstr("baton_nodes{role=\"decode\",state=\"alive\"} 1"));
}

TEST_F(GatewayTest, ThousandStreamsAtOnce) {
  config.gateway.io_threads = 2;
  config.gateway.queue_limit = 2000;
  NodeScript prefill;
  prefill.credits = 2000;
  NodeScript decode;
  decode.max_batch = 2000;
  decode.step = milliseconds(5);
  start_pair(prefill, decode);
  std::vector<std::unique_ptr<RawHttpClient>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<RawHttpClient>(gateway->http_address()));
    ASSERT_TRUE(clients.back()->is_connected()) << i;
    clients.back()->send(http_request("POST", "/v1/chat/completions", chat(R"(,"stream":true)")));
  }
  for (auto& client : clients) {
    const RawReply reply = client->read_reply(seconds(60));
    ASSERT_EQ(reply.status, 200) << reply.body;
    std::string text;
    for (const std::string& event : sse_events(reply.body)) {
      const std::string piece = at(event, "/choices/0/delta/content");
      text += piece == "absent" ? "" : piece;
    }
    EXPECT_EQ(text, "Hello world");
  }
  wait_counts("d0", [](const testing::NodeCounts& c) { return c.running == 0; });
}

TEST_F(GatewayTest, NodeThatComesBackServesAgain) {
  start_pair();
  EXPECT_EQ(post("/v1/chat/completions", chat()).status, 200);
  for (const char* name : {"p0", "d0"}) {
    nodes.run_and_wait([&] { cluster->remove(name); });
    wait_status(503);
    add(name);
    wait_status(200);
    EXPECT_EQ(post("/v1/chat/completions", chat()).status, 200);
  }
}

TEST_F(GatewayTest, DrainFinishesStreamsAndRefusesNewOnes) {
  NodeScript slow;
  slow.step = milliseconds(20);
  start_pair({}, slow);
  RawHttpClient running(gateway->http_address());
  running.send(http_request("POST", "/v1/chat/completions", chat(R"(,"stream":true)")));
  ASSERT_TRUE(running.wait_for("\"content\":\"H\""));
  std::thread drainer([this] { gateway->drain(seconds(20)); });
  const RawReply reply = running.read_reply();
  EXPECT_TRUE(reply.complete);
  EXPECT_THAT(reply.body, HasSubstr("[DONE]"));
  running.close();
  drainer.join();
}

TEST_F(GatewayTest, StopEndsStreamsWithAnErrorEvent) {
  NodeScript slow;
  slow.step = seconds(30);
  start_pair({}, slow);
  RawHttpClient running(gateway->http_address());
  running.send(http_request("POST", "/v1/chat/completions", chat(R"(,"stream":true)")));
  ASSERT_TRUE(running.wait_for("\"content\":\"H\""));
  gateway->stop();
  const RawReply reply = running.read_reply();
  EXPECT_THAT(reply.body, HasSubstr("shutting down"));
}

TEST_F(GatewayTest, DrainsANodeOnRequest) {
  start_pair();
  const std::string path = "/v1/baton/nodes/d0/drain";
  const RawReply reply = post(path + "?limit_ms=1000", "");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(at(reply.body, "/node"), "d0");
  EXPECT_EQ(at(reply.body, "/state"), "draining");
  EXPECT_THAT(get("/baton/status").body, HasSubstr("\"state\":\"draining\""));
  wait_status(503);
  EXPECT_EQ(post("/v1/baton/nodes/x/drain", "").status, 404);
  EXPECT_EQ(post(path + "?limit_ms=-1", "").status, 400);
  EXPECT_EQ(post(path + "?limit_ms=99999999999999999999", "").status, 400);
  EXPECT_EQ(post(path, "", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(get(path).status, 405);
  EXPECT_EQ(post("/v1/baton/nodes//drain", "").status, 404);
  wait_counts("d0", [](const testing::NodeCounts& c) { return c.drains == 1; });
}

TEST_F(GatewayTest, BusyControlPortIsAnError) {
  start();
  ClusterConfig second = config;
  second.gateway.control_listen = gateway->control_address();
  const auto other = Gateway::start(second, log, tuning);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("gateway.control_listen"));
}

}  // namespace
}  // namespace baton::gateway
