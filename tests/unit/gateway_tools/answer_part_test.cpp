// The exact JSON of deltas and messages.
#include "gateway/tools/answer_part.h"

#include <gtest/gtest.h>

namespace baton::gateway {
namespace {

using Kind = AnswerPart::Kind;

std::string delta(const AnswerPart& part) {
  std::string out;
  append_delta(out, part);
  return out;
}

std::string message(const AnswerParts& parts) {
  std::string out;
  append_message_fields(out, parts);
  return out;
}

TEST(AnswerPart, DeltasHaveTheIndexAlwaysAndIdTypeNameOnce) {
  EXPECT_EQ(delta({Kind::CallBegin, 1, "f", "call_1"}),
            R"({"tool_calls":[{"index":1,"id":"call_1","type":"function",)"
            R"("function":{"name":"f","arguments":""}}]})");
  EXPECT_EQ(delta({Kind::CallArguments, 1, "{\"a\"", ""}),
            R"({"tool_calls":[{"index":1,"function":{"arguments":"{\"a\""}}]})");
  EXPECT_EQ(delta({Kind::Content, 0, "x", ""}), R"({"content":"x"})");
  EXPECT_EQ(delta({Kind::Reasoning, 0, "x", ""}), R"({"reasoning_content":"x"})");
}

TEST(AnswerPart, MessageJoinsPieces) {
  AnswerParts parts;
  add_part(parts, Kind::Reasoning, 0, "why");
  add_part(parts, Kind::CallBegin, 0, "f");
  parts.back().id = "c0";
  add_part(parts, Kind::CallArguments, 0, "{\"a\":");
  add_part(parts, Kind::CallArguments, 0, "1}");
  add_part(parts, Kind::CallBegin, 1, "g");
  parts.back().id = "c1";
  add_part(parts, Kind::CallArguments, 1, "{}");
  EXPECT_EQ(parts.size(), 5U);
  EXPECT_EQ(message(parts),
            R"("content":null,"refusal":null,"reasoning_content":"why","tool_calls":[)"
            R"({"id":"c0","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},)"
            R"({"id":"c1","type":"function","function":{"name":"g","arguments":"{}"}}])");
  EXPECT_EQ(message({}), R"("content":"","refusal":null)");
  EXPECT_EQ(message({{Kind::Content, 0, "a", ""},
                     {Kind::CallBegin, 0, "f", "c"},
                     {Kind::Content, 0, "b", ""}}),
            R"("content":"ab","refusal":null,"tool_calls":[)"
            R"({"id":"c","type":"function","function":{"name":"f","arguments":""}}])");
}

}  // namespace
}  // namespace baton::gateway
