#include "gateway/tools/answer_text.h"

#include <gtest/gtest.h>

namespace baton::gateway {
namespace {

using Kind = AnswerPart::Kind;

AnswerTextOptions hermes() {
  AnswerTextOptions options;
  options.tools = ToolFormat::Hermes;
  options.calls.names = {"f"};
  return options;
}

TEST(AnswerText, ReasoningThenContentThenCalls) {
  AnswerTextOptions options = hermes();
  options.reasoning = true;
  AnswerText text(options, RequestId{0xab}, 1);
  text.push("<think>hm</think>\nOne moment.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}");
  text.flush(false);
  const AnswerParts expected = {{Kind::Reasoning, 0, "hm", ""},
                                {Kind::Content, 0, "One moment.", ""},
                                {Kind::CallBegin, 0, "f", "call_00000000000000ab010000"},
                                {Kind::CallArguments, 0, "{}", ""}};
  EXPECT_EQ(text.parts(), expected);
  EXPECT_TRUE(text.has_calls());
}

TEST(AnswerText, CallsWithinReasoningAreReasoning) {
  AnswerTextOptions options = hermes();
  options.reasoning = true;
  options.reasoning_open = true;
  AnswerText text(options, RequestId{1}, 0);
  text.push("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call></think>No.");
  text.flush(false);
  ASSERT_EQ(text.parts().size(), 2U);
  EXPECT_EQ(text.parts()[0].kind, Kind::Reasoning);
  EXPECT_EQ(text.parts()[1].text, "No.");
  EXPECT_FALSE(text.has_calls());
}

TEST(AnswerText, IdsDifferByRequestChoiceAndCall) {
  std::vector<std::string> ids;
  for (const std::uint64_t request : {1, 2}) {
    for (const std::uint32_t choice : {0U, 1U}) {
      AnswerText text(hermes(), RequestId{request}, choice);
      text.push("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
      text.push("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
      for (const AnswerPart& part : text.parts()) {
        if (part.kind == Kind::CallBegin) {
          EXPECT_TRUE(part.id.starts_with("call_"));
          ids.push_back(part.id);
        }
      }
    }
  }
  EXPECT_EQ(ids.size(), 8U);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
}

TEST(AnswerText, MistralsIdsHaveNineCharacters) {
  AnswerTextOptions options = hermes();
  options.tools = ToolFormat::Mistral;
  AnswerText text(options, RequestId{1}, 0);
  text.push("[TOOL_CALLS]f[ARGS]{}");
  ASSERT_FALSE(text.parts().empty());
  EXPECT_EQ(text.parts()[0].id.size(), 9U);
  EXPECT_EQ(short_call_id(text.parts()[0].id), text.parts()[0].id);
  EXPECT_EQ(short_call_id("call_1").size(), 9U);
  EXPECT_NE(short_call_id("call_1"), short_call_id("call_2"));
}

TEST(AnswerText, ANamedFunctionDoesNotChangeTheFinishReason) {
  AnswerTextOptions options = hermes();
  options.finish_as_calls = false;
  options.calls.one_call = true;
  AnswerText text(options, RequestId{1}, 0);
  EXPECT_FALSE(text.is_finished());
  text.push("<tool_call>{\"name\": \"f\", \"arguments\": {}}");
  EXPECT_TRUE(text.is_finished());
  EXPECT_FALSE(text.has_calls());
}

}  // namespace
}  // namespace baton::gateway
