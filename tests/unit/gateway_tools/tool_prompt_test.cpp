#include "gateway/tools/tool_prompt.h"

#include <gtest/gtest.h>

#include "gateway/tools/answer_text.h"

namespace baton::gateway {
namespace {

using engine::ChatMessage;

ToolRequest plain_tool() {
  ToolRequest tools;
  tools.tools.push_back({"f", R"({"type":"function"})", "{}"});
  tools.choice = ToolChoice::Auto;
  return tools;
}

TEST(ToolPrompt, TheSystemMessageTellsOfTools) {
  std::vector<ChatMessage> messages = {{"user", "Hi", "", ""}};
  write_tools_as_text(ToolFormat::Hermes, plain_tool(), messages);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_NE(messages[0].content.find("<tools>\n{\"type\":\"function\"}\n</tools>"),
            std::string::npos);
  EXPECT_NE(messages[0].content.find("<tool_call>\n{\"name\": \"name-of-the-function\", "
                                     "\"arguments\": {"),
            std::string::npos)
      << messages[0].content;

  messages = {{"system", "Be brief.", "", ""}, {"user", "Hi", "", ""}};
  write_tools_as_text(ToolFormat::Gemma, plain_tool(), messages);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_TRUE(messages[0].content.starts_with("Be brief.\n\n"));
  EXPECT_NE(messages[0].content.find("\n{\"name\": \"name-of-the-function\", \"parameters\": {"),
            std::string::npos);
}

TEST(ToolPrompt, CallsAndResultsBecomeText) {
  std::vector<ChatMessage> messages = {
      {"user", "Q", "", ""},
      {"assistant",
       "Wait.",
       "",
       R"({"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"a":1}}},)"
       R"({"id":"2","type":"function","function":{"name":"g","arguments":{}}}]})"},
      {"tool", "one", "", R"({"tool_call_id":"1"})"},
      {"tool", "two", "", R"({"tool_call_id":"2"})"},
      {"assistant", "So.", "", R"({"reasoning_content":"r"})"}};
  write_tools_as_text(ToolFormat::Hermes, ToolRequest(), messages);
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[1].content,
            "Wait.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(messages[1].extra_json, "");
  EXPECT_EQ(messages[2].role, "user");
  EXPECT_EQ(messages[2].content,
            "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>");
  EXPECT_EQ(messages[3].content, "So.");
  EXPECT_EQ(messages[3].extra_json, R"({"reasoning_content":"r"})");
}

TEST(ToolPrompt, IdsAreShortenedAndNothingElse) {
  std::vector<ChatMessage> messages = {
      {"assistant",
       "",
       "",
       R"({"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":)"
       R"({"id":"call_1"}}}]})"},
      {"tool", "x", "", R"({"tool_call_id":"call_1"})"},
      {"user", "x", "", ""}};
  shorten_call_ids(messages);
  const std::string id = short_call_id("call_1");
  EXPECT_EQ(messages[0].extra_json,
            R"({"tool_calls":[{"id":")" + id +
                R"(","type":"function","function":{"name":"f","arguments":{"id":"call_1"}}}]})");
  EXPECT_EQ(messages[1].extra_json, R"({"tool_call_id":")" + id + "\"}");
}

}  // namespace
}  // namespace baton::gateway
