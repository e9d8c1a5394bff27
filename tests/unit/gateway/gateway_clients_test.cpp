// What well-known clients send, as they send it: accepted, and the usage they read is right.
#include <string>

#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

struct ClientCase {
  const char* name;
  const char* path;
  const char* headers;
  const char* body;
  std::uint32_t completion_tokens;  // "Hello world" and its stop token are 12
};

std::ostream& operator<<(std::ostream& out, const ClientCase& client) {
  return out << client.name;
}

class GatewayClients : public GatewayTest, public ::testing::WithParamInterface<ClientCase> {};

// The last usage object of a reply or stream, and how often it came.
struct FoundUsage {
  std::string json;
  int count = 0;
};

FoundUsage usage_of(const RawReply& reply) {
  FoundUsage found;
  if (reply.header("content-type") == "application/json") {
    return {at(reply.body, "/usage"), 1};
  }
  for (const std::string& event : sse_events(reply.body)) {
    const std::string usage = event == "[DONE]" ? "absent" : at(event, "/usage");
    if (usage != "absent" && usage != "null") {
      found = {usage, found.count + 1};
    }
  }
  return found;
}

TEST_P(GatewayClients, AreServedWithTheRightUsage) {
  start_pair();
  const RawReply reply = post(GetParam().path, GetParam().body, GetParam().headers);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const bool streams = std::string(GetParam().body).find(R"("stream":true)") != std::string::npos;
  EXPECT_EQ(reply.header("content-type"),
            streams ? "text/event-stream; charset=utf-8" : "application/json");
  if (streams) {
    EXPECT_EQ(sse_events(reply.body).back(), "[DONE]");
  }
  const FoundUsage usage = usage_of(reply);
  const bool wants_usage =
      !streams || std::string(GetParam().body).find("include_usage") != std::string::npos;
  ASSERT_EQ(usage.count > 0, wants_usage) << reply.body;
  if (!wants_usage) {
    return;
  }
  EXPECT_EQ(at(usage.json, "/prompt_tokens"), std::to_string(last_request("d0").prompt.size()));
  EXPECT_EQ(at(usage.json, "/completion_tokens"), std::to_string(GetParam().completion_tokens));
  // What the prefill node found in its cache, not what was moved to the decode node.
  EXPECT_EQ(at(usage.json, "/prompt_tokens_details/cached_tokens"), "3");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    GatewayClients,
    ::testing::Values(
        ClientCase{
            "vllm bench serve, completions",
            "/v1/completions",
            "Authorization: Bearer none\r\nx-request-id: bench-0\r\n",
            R"({"model":"scripted","prompt":"Once upon a time","repetition_penalty":1.0,"max_tokens":8,)"
            R"("logprobs":null,"stream":true,"stream_options":{"include_usage":true},"temperature":0.0,)"
            R"("ignore_eos":true})",
            8},
        ClientCase{
            "vllm bench serve, chat",
            "/v1/chat/completions",
            "Authorization: Bearer none\r\nx-request-id: bench-1\r\n",
            R"({"model":"scripted","messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}],)"
            R"("max_completion_tokens":8,"stream":true,"stream_options":{"include_usage":true},)"
            R"("temperature":0.0,"ignore_eos":true})",
            8},
        ClientCase{
            "vllm bench serve, token ids",
            "/v1/completions",
            "",
            R"({"model":"scripted","prompt":[72,101,108,108],"repetition_penalty":1.0,"max_tokens":4,)"
            R"("logprobs":null,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true})",
            4},
        ClientCase{
            "guidellm, completions",
            "/v1/completions",
            "",
            R"({"prompt":"Tell me","model":"scripted","stream":true,)"
            R"("stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":6,)"
            R"("max_completion_tokens":6,"ignore_eos":true,"stop":null})",
            6},
        ClientCase{"guidellm, chat",
                   "/v1/chat/completions",
                   "",
                   R"({"messages":[{"role":"user","content":[{"type":"text","text":"Tell me"}]}],)"
                   R"("model":"scripted","stream":true,)"
                   R"("stream_options":{"include_usage":true,"continuous_usage_stats":true},)"
                   R"("max_completion_tokens":6,"ignore_eos":true,"stop":null})",
                   6},
        ClientCase{
            "aiperf, chat",
            "/v1/chat/completions",
            "X-Request-ID: 4e0d\r\nAccept: text/event-stream\r\n",
            R"({"messages":[{"role":"user","name":null,"content":"hello"}],"model":"scripted",)"
            R"("stream":true,"max_completion_tokens":5,"stream_options":{"include_usage":true},)"
            R"("min_tokens":5})",
            5},
        ClientCase{"aiperf, completions, whole",
                   "/v1/completions",
                   "X-Request-ID: 4e0e\r\n",
                   R"({"prompt":["hello"],"model":"scripted","stream":false,"max_tokens":5})",
                   5},
        ClientCase{
            "LangChain ChatOpenAI",
            "/v1/chat/completions",
            "Authorization: Bearer sk-none\r\nX-Stainless-Lang: python\r\nX-Stainless-Async: "
            "false\r\nUser-Agent: OpenAI/Python\r\n",
            R"({"messages":[{"content":"Be short.","role":"system"},{"content":"Hi","role":"user"},)"
            R"({"content":"Yes?","role":"assistant"},{"content":"Go on","role":"user"}],)"
            R"("model":"scripted","n":1,"stream":false,"temperature":0.7,"frequency_penalty":0,)"
            R"("presence_penalty":0,"top_p":1,"seed":null,"logprobs":false})",
            12},
        ClientCase{
            "LangChain ChatOpenAI, streamed",
            "/v1/chat/completions",
            "",
            R"({"messages":[{"content":"Hi","role":"user"}],"model":"scripted","stream":true,)"
            R"("stream_options":{"include_usage":true},"temperature":0.7})",
            12},
        ClientCase{
            "Open WebUI",
            "/v1/chat/completions",
            "Authorization: Bearer none\r\nX-OpenWebUI-User-Name: Ada\r\nX-OpenWebUI-User-Id: "
            "1\r\nX-OpenWebUI-User-Email: ada@example.org\r\nX-OpenWebUI-User-Role: user\r\n",
            R"({"stream":true,"model":"scripted","messages":[{"role":"system","content":"You help."},)"
            R"({"role":"user","content":"Hi"}],"stream_options":{"include_usage":true},)"
            R"("temperature":0.8,"metadata":{"chat_id":"c"},"user":"ada"})",
            12},
        ClientCase{"Open WebUI, title of a chat",
                   "/v1/chat/completions",
                   "",
                   R"({"model":"scripted","messages":[{"role":"user","content":"Name it"}],)"
                   R"("stream":false,"max_completion_tokens":1000})",
                   12},
        ClientCase{"lm-eval, log-likelihood",
                   "/v1/completions",
                   "",
                   R"({"model":"scripted","prompt":[[72,101,108]],"temperature":0,"max_tokens":1,)"
                   R"("logprobs":1,"seed":1234,"echo":true})",
                   1},
        ClientCase{
            "a stream that asks for no usage",
            "/v1/chat/completions",
            "",
            R"({"model":"scripted","messages":[{"role":"user","content":"Hi"}],"stream":true})",
            12}));

}  // namespace
}  // namespace baton::gateway
