// Several choices in one answer: n, lists of prompts, their usage, and their common end.

#include <map>
#include <vector>

#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

// The prompt without its start token, and the number of the choice.
NodeScript echoing() {
  NodeScript script;
  script.answer = [](const GenerateRequest& request) {
    std::string text;
    for (const TokenId id : request.prompt) {
      text += id < 256 ? std::string(1, static_cast<char>(id)) : "";
    }
    return testing::byte_tokens(text + static_cast<char>('0' + request.choice));
  };
  return script;
}

struct Streamed {
  std::map<std::string, std::string> text;    // by index
  std::map<std::string, std::string> finish;  // by index
  std::map<std::string, int> roles;           // by index
  std::string usage;                          // of the event without choices
  std::string last;
};

Streamed read_stream(const RawReply& reply, const std::string& field) {
  Streamed out;
  for (const std::string& event : sse_events(reply.body)) {
    out.last = event;
    if (event == "[DONE]") {
      continue;
    }
    if (at(event, "/choices") == "[]") {
      out.usage = at(event, "/usage");
      continue;
    }
    const std::string index = at(event, "/choices/0/index");
    const std::string piece = at(event, "/choices/0" + field);
    out.text[index] += piece == "absent" ? "" : piece;
    out.roles[index] += at(event, "/choices/0/delta/role") == "assistant" ? 1 : 0;
    if (const std::string finish = at(event, "/choices/0/finish_reason"); finish != "null") {
      EXPECT_EQ(out.finish.count(index), 0U) << "two ends of choice " << index;
      out.finish[index] = finish;
    }
  }
  return out;
}

TEST_F(GatewayTest, SeveralChoicesInOneReply) {
  start_pair(echoing(), echoing());
  const RawReply reply = post("/v1/completions",
                              R"({"model":"scripted","prompt":"ab","n":3,"best_of":3,"seed":5,)"
                              R"("max_tokens":50})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  for (const char* i : {"0", "1", "2"}) {
    const std::string choice = std::string("/choices/") + i;
    EXPECT_EQ(at(reply.body, choice + "/index"), i);
    EXPECT_EQ(at(reply.body, choice + "/text"), std::string("ab") + i);
    EXPECT_EQ(at(reply.body, choice + "/finish_reason"), "stop");
  }
  // The prompt counts once, every completion counts; what was cached counts once too.
  EXPECT_EQ(at(reply.body, "/usage/prompt_tokens"), "2");
  EXPECT_EQ(at(reply.body, "/usage/completion_tokens"), "12");
  EXPECT_EQ(at(reply.body, "/usage/prompt_tokens_details/cached_tokens"), "2");
  // One request each, with one seed, told apart by the choice.
  EXPECT_EQ(counts("d0").reserves, 3U);
  nodes.run_and_wait([this] {
    const auto& seen = cluster->node("d0").seen();
    EXPECT_EQ(seen[0].sampling.seed, 5U);
    EXPECT_EQ(seen[2].sampling.seed, 5U);
    EXPECT_NE(seen[0].choice, seen[1].choice);
    EXPECT_NE(seen[0].id, seen[1].id);
  });
}

TEST_F(GatewayTest, ListsOfPromptsWithSeveralChoices) {
  start_pair(echoing(), echoing());
  const RawReply reply =
      post("/v1/completions",
           R"({"model":"scripted","prompt":["x",[121,122]],"n":2,"return_token_ids":true})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::vector<std::string> texts{"x0", "x1", "yz0", "yz1"};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string choice = "/choices/" + std::to_string(i);
    EXPECT_EQ(at(reply.body, choice + "/index"), std::to_string(i));
    EXPECT_EQ(at(reply.body, choice + "/text"), texts[i]);
  }
  EXPECT_EQ(at(reply.body, "/choices/3/prompt_token_ids"), "[121,122]");
  EXPECT_EQ(at(reply.body, "/usage/prompt_tokens"), "3");
  EXPECT_EQ(at(reply.body, "/usage/completion_tokens"), "14");
  // Each prompt is answered as if it had come alone.
  nodes.run_and_wait([this] {
    for (const GenerateRequest& request : cluster->node("d0").seen()) {
      EXPECT_LT(request.choice, 2U);
    }
  });
}

TEST_F(GatewayTest, StreamedChoicesCarryTheirIndex) {
  start_pair(echoing(), echoing());
  const RawReply reply =
      post("/v1/chat/completions",
           chat(R"(,"n":2,"stream":true,"stop":"1","stream_options":{"include_usage":true})"));
  ASSERT_EQ(reply.status, 200);
  const Streamed streamed = read_stream(reply, "/delta/content");
  ASSERT_EQ(streamed.text.size(), 2U);
  EXPECT_EQ(streamed.text.at("0"), streamed.text.at("1") + "0");  // its stop string is cut off
  EXPECT_EQ(streamed.finish.at("0"), "stop");
  EXPECT_EQ(streamed.finish.at("1"), "stop");
  EXPECT_EQ(streamed.roles.at("0"), 1);
  EXPECT_EQ(streamed.roles.at("1"), 1);
  EXPECT_EQ(streamed.last, "[DONE]");
  EXPECT_EQ(at(streamed.usage, "/prompt_tokens_details/cached_tokens"), "3");
}

TEST_F(GatewayTest, ContinuousUsageCountsAllChoices) {
  start_pair(echoing(), echoing());
  const RawReply reply =
      post("/v1/completions",
           R"({"model":"scripted","prompt":["a","b"],"stream":true,)"
           R"("stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  const Streamed streamed = read_stream(reply, "/text");
  EXPECT_EQ(streamed.text.at("0"), "a0");
  EXPECT_EQ(streamed.text.at("1"), "b0");
  EXPECT_EQ(at(streamed.usage, "/completion_tokens"), "6");
  EXPECT_EQ(at(streamed.usage, "/prompt_tokens"), "2");
}

TEST_F(GatewayTest, LeavingClientStopsEveryChoice) {
  NodeScript endless;
  endless.step = milliseconds(5);
  endless.answer = [](const GenerateRequest&) { return std::vector<TokenId>(3000, 'x'); };
  start_pair(endless, endless);
  RawHttpClient client(gateway->http_address());
  client.send(http_request("POST", "/v1/chat/completions", chat(R"(,"stream":true,"n":3)")));
  ASSERT_TRUE(client.wait_for("\"index\":2,\"delta\":{\"content\":\"x\""));
  client.close();
  wait_counts("d0", [](const testing::NodeCounts& c) { return c.cancels == 3 && c.running == 0; });
}

TEST_F(GatewayTest, OneFailedChoiceEndsAll) {
  for (const char* stream : {"", R"(,"stream":true)"}) {
    NodeScript failing;
    failing.step = milliseconds(2);
    failing.answer = [](const GenerateRequest&) { return std::vector<TokenId>(3000, 'x'); };
    failing.decode_error_at = 5;
    failing.fails = [](const GenerateRequest& request) { return request.choice == 1; };
    start_pair(failing, failing);
    const RawReply reply = post("/v1/chat/completions", chat(std::string(R"(,"n":2)") + stream));
    if (*stream == '\0') {
      EXPECT_EQ(reply.status, 500) << reply.body;
    } else {
      EXPECT_EQ(reply.status, 200);
      const auto events = sse_events(reply.body);
      ASSERT_GE(events.size(), 2U);
      EXPECT_EQ(at(events.end()[-2], "/error/code"), "internal_error");
      EXPECT_EQ(events.back(), "[DONE]");
    }
    wait_counts("d0", [](const testing::NodeCounts& c) { return c.running == 0; });
    nodes.run_and_wait([this] { cluster.reset(); });
    gateway->stop();
  }
}

TEST_F(GatewayTest, AQueueWithoutRoomForAllChoicesIs429) {
  config.gateway.queue_limit = 1;
  NodeScript slow;
  slow.credits = 1;
  slow.prefill_delay = seconds(30);
  start_pair(slow);
  const RawReply reply = post("/v1/chat/completions", chat(R"(,"n":4,"stream":true)"));
  EXPECT_EQ(reply.status, 429) << reply.body;
  wait_counts("d0", [](const testing::NodeCounts& c) { return c.running == 0; });
  while (at(get("/baton/status").body, "/queued") != "0") {
    std::this_thread::yield();
  }
}

TEST_F(GatewayTest, FaultsOfOnePromptNameIt) {
  start_pair();
  const RawReply outside =
      post("/v1/completions", R"({"model":"scripted","prompt":[[1],[2,300]]})");
  EXPECT_EQ(outside.status, 400);
  EXPECT_EQ(at(outside.body, "/error/param"), "prompt[1][1]");
  const RawReply long_one =
      post("/v1/completions",
           R"({"model":"scripted","prompt":["a",")" + std::string(4097, 'x') + R"("]})");
  EXPECT_EQ(long_one.status, 400);
  EXPECT_EQ(at(long_one.body, "/error/param"), "prompt[1]");
  EXPECT_EQ(at(long_one.body, "/error/code"), "context_length_exceeded");
  EXPECT_EQ(counts("d0").reserves, 0U);
}

}  // namespace
}  // namespace baton::gateway
