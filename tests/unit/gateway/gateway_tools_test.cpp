// Calls of tools and reasoning through a whole gateway: what the nodes are asked, and what the
// client gets.
#include <gtest/gtest.h>

#include "tests/support/byte_tokenizer.h"
#include "tests/unit/gateway/gateway_fixture.h"

namespace baton::gateway {
namespace {

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"f","description":"does it",)"
    R"("parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},)"
    R"({"type":"function","function":{"name":"g"}}])";

NodeScript saying(const std::string& text) {
  NodeScript script;
  script.answer = [text](const GenerateRequest&) { return testing::byte_tokens(text); };
  return script;
}

std::string prompt_of(const GenerateRequest& request) {
  std::string text;
  for (const TokenId id : request.prompt) {
    text += id < 256 ? static_cast<char>(id) : '#';
  }
  return text;
}

struct StreamedCalls {
  std::string content;
  std::string reasoning;
  std::vector<std::string> names;
  std::vector<std::string> arguments;
  std::string finish;
  std::size_t argument_pieces = 0;
};

StreamedCalls read_calls(const RawReply& reply) {
  StreamedCalls out;
  const auto text = [](const std::string& event, const std::string& pointer) {
    const std::string value = at(event, pointer);
    return value == "absent" || value == "null" ? "" : value;
  };
  for (const std::string& event : sse_events(reply.body)) {
    if (event == "[DONE]") {
      continue;
    }
    out.content += text(event, "/choices/0/delta/content");
    out.reasoning += text(event, "/choices/0/delta/reasoning_content");
    out.finish += text(event, "/choices/0/finish_reason");
    const std::string call = "/choices/0/delta/tool_calls/0";
    if (at(event, call) == "absent") {
      continue;
    }
    const std::size_t index = std::stoul(at(event, call + "/index"));
    if (const std::string name = text(event, call + "/function/name"); !name.empty()) {
      EXPECT_EQ(index, out.names.size()) << "a name came twice, or out of order";
      EXPECT_EQ(at(event, call + "/type"), "function");
      EXPECT_TRUE(at(event, call + "/id").starts_with("call_"));
      out.names.push_back(name);
      out.arguments.emplace_back();
    } else {
      EXPECT_EQ(at(event, call + "/id"), "absent");
    }
    const std::string piece = text(event, call + "/function/arguments");
    out.arguments.at(index) += piece;
    out.argument_pieces += piece.empty() ? 0 : 1;
  }
  return out;
}

constexpr const char* kTwoCalls =
    "Wait.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
    "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

TEST_F(GatewayTest, CallsInAWholeReply) {
  start_pair(saying(kTwoCalls), saying(kTwoCalls));
  const RawReply reply = post("/v1/chat/completions", chat(kTools));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string message = "/choices/0/message";
  EXPECT_EQ(at(reply.body, message + "/content"), "Wait.");
  EXPECT_EQ(at(reply.body, message + "/tool_calls/0/function/name"), "f");
  EXPECT_EQ(at(reply.body, message + "/tool_calls/0/function/arguments"), R"({"a": 1})");
  EXPECT_EQ(at(reply.body, message + "/tool_calls/1/function/name"), "g");
  EXPECT_EQ(at(reply.body, "/choices/0/finish_reason"), "tool_calls");
  const std::string prompt = prompt_of(last_request("d0"));
  EXPECT_NE(prompt.find(R"({"name":"f","description":"does it")"), std::string::npos) << prompt;
}

TEST_F(GatewayTest, CallsInAStream) {
  start_pair(saying(kTwoCalls), saying(kTwoCalls));
  const RawReply reply =
      post("/v1/chat/completions", chat(std::string(kTools) + R"(,"stream":true)"));
  const StreamedCalls streamed = read_calls(reply);
  EXPECT_EQ(streamed.content, "Wait.");
  EXPECT_EQ(streamed.names, (std::vector<std::string>{"f", "g"}));
  EXPECT_EQ(streamed.arguments, (std::vector<std::string>{R"({"a": 1})", "{}"}));
  EXPECT_GT(streamed.argument_pieces, 2U) << reply.body;
  EXPECT_EQ(streamed.finish, "tool_calls");
}

TEST_F(GatewayTest, OneCallEndsTheAnswerWhenNoMoreAreWanted) {
  start_pair(saying(kTwoCalls), saying(kTwoCalls));
  const RawReply reply =
      post("/v1/chat/completions",
           chat(std::string(kTools) + R"(,"stream":true,"parallel_tool_calls":false)"));
  const StreamedCalls streamed = read_calls(reply);
  EXPECT_EQ(streamed.names, std::vector<std::string>{"f"});
  EXPECT_EQ(streamed.finish, "tool_calls");
}

TEST_F(GatewayTest, ForcedCallsComeWithAGrammar) {
  start_pair(saying(kTwoCalls), saying(kTwoCalls));
  const RawReply required =
      post("/v1/chat/completions", chat(std::string(kTools) + R"(,"tool_choice":"required")"));
  EXPECT_EQ(at(required.body, "/choices/0/finish_reason"), "tool_calls") << required.body;
  EXPECT_EQ(last_request("d0").grammar.kind, Grammar::Kind::StructuralTag);
  const RawReply named = post(
      "/v1/chat/completions",
      chat(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"));
  EXPECT_EQ(at(named.body, "/choices/0/finish_reason"), "stop");
  EXPECT_EQ(at(named.body, "/choices/0/message/tool_calls/0/function/name"), "f");
  const std::string grammar = last_request("d0").grammar.text;
  EXPECT_NE(grammar.find("\"f\\\""), std::string::npos) << grammar;
  EXPECT_EQ(grammar.find("\"g\\\""), std::string::npos) << grammar;
  post("/v1/chat/completions", chat(kTools));
  EXPECT_EQ(last_request("d0").grammar.kind, Grammar::Kind::None);
}

// The script's first call is cut inside of its arguments, then the closing mark of it.
TEST_F(GatewayTest, AForcedCallThatMaxTokensCutsGivesWhatThereIsAndNoContent) {
  const std::string text = std::string(kTwoCalls).substr(6);
  start_pair(saying(text), saying(text));
  const std::size_t in_arguments = text.find(": 1}");
  const std::size_t in_closer = text.find("ol_call>\n<tool");
  const std::string required = std::string(kTools) + R"(,"tool_choice":"required","max_tokens":)";
  for (const auto& [tokens, arguments] :
       {std::pair(in_arguments, R"({"a")"), std::pair(in_closer, R"({"a": 1})")}) {
    const std::string body = required + std::to_string(tokens);
    const RawReply whole = post("/v1/chat/completions", chat(body));
    const std::string message = "/choices/0/message";
    EXPECT_EQ(at(whole.body, message + "/content"), "null") << whole.body;
    EXPECT_EQ(at(whole.body, message + "/tool_calls/0/function/name"), "f");
    EXPECT_EQ(at(whole.body, message + "/tool_calls/0/function/arguments"), arguments);
    EXPECT_EQ(at(whole.body, message + "/tool_calls/1"), "absent");
    EXPECT_EQ(at(whole.body, "/choices/0/finish_reason"), "length");
    const StreamedCalls streamed =
        read_calls(post("/v1/chat/completions", chat(body + R"(,"stream":true)")));
    EXPECT_EQ(streamed.content, "");
    EXPECT_EQ(streamed.names, std::vector<std::string>{"f"});
    EXPECT_EQ(streamed.arguments, std::vector<std::string>{arguments});
    EXPECT_EQ(streamed.finish, "length");
  }
}

TEST_F(GatewayTest, AStopStringInsideOfACallEndsTheAnswerAsAStop) {
  start_pair(saying(kTwoCalls), saying(kTwoCalls));
  const RawReply reply =
      post("/v1/chat/completions", chat(std::string(kTools) + R"(,"stop":"a\": 1")"));
  EXPECT_EQ(at(reply.body, "/choices/0/message/content"), "Wait.") << reply.body;
  EXPECT_EQ(at(reply.body, "/choices/0/message/tool_calls/0/function/arguments"), R"({")");
  EXPECT_EQ(at(reply.body, "/choices/0/finish_reason"), "stop");
}

TEST_F(GatewayTest, WithoutToolsTheTextStays) {
  start_pair(saying(kTwoCalls), saying(kTwoCalls));
  for (const std::string& more :
       {std::string(), std::string(kTools) + R"(,"tool_choice":"none")"}) {
    const RawReply reply = post("/v1/chat/completions", chat(more));
    EXPECT_EQ(at(reply.body, "/choices/0/message/content"), kTwoCalls);
    EXPECT_EQ(at(reply.body, "/choices/0/message/tool_calls"), "absent");
    EXPECT_EQ(at(reply.body, "/choices/0/finish_reason"), "stop");
    EXPECT_EQ(prompt_of(last_request("d0")).find("does it"), std::string::npos);
  }
}

TEST_F(GatewayTest, TheConfigurationChoosesTheFormat) {
  config.model.id = "scripted";
  config.model.tool_parser = "llama3";
  const std::string text = R"({"name": "f", "parameters": {"a": 2}})";
  start_pair(saying(text), saying(text));
  const RawReply reply = post("/v1/chat/completions", chat(kTools));
  EXPECT_EQ(at(reply.body, "/choices/0/message/tool_calls/0/function/arguments"), R"({"a": 2})");
  EXPECT_EQ(at(reply.body, "/choices/0/message/content"), "null");
}

TEST_F(GatewayTest, ToolsMayBeSwitchedOff) {
  config.model.id = "scripted";
  config.model.tool_parser = "off";
  start_pair();
  const RawReply reply = post("/v1/chat/completions", chat(kTools));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(at(reply.body, "/error/param"), "tools");
  EXPECT_EQ(post("/v1/completions", completion(kTools)).status, 400);
}

TEST_F(GatewayTest, ReasoningIsGivenApartAndCounted) {
  config.model.id = "scripted";
  config.model.reasoning_parser = "think";
  const std::string text = "<think>\nhm\n</think>\n\nYes";
  start_pair(saying(text), saying(text));
  const RawReply whole = post("/v1/chat/completions", chat());
  EXPECT_EQ(at(whole.body, "/choices/0/message/content"), "Yes");
  EXPECT_EQ(at(whole.body, "/choices/0/message/reasoning_content"), "hm");
  // One token a byte: from the tag's last to the closing tag's last.
  EXPECT_EQ(at(whole.body, "/usage/completion_tokens_details/reasoning_tokens"), "13");
  const StreamedCalls streamed =
      read_calls(post("/v1/chat/completions", chat(R"(,"stream":true)")));
  EXPECT_EQ(streamed.content, "Yes");
  EXPECT_EQ(streamed.reasoning, "hm");
  EXPECT_EQ(streamed.finish, "stop");
}

}  // namespace
}  // namespace baton::gateway
