// The exact structural tags.
#include "gateway/tools/call_grammar.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "gateway/tools/call_parser.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::gateway {
namespace {

ToolRequest two_tools() {
  ToolRequest tools;
  tools.tools.push_back(
      {"f", "", R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})"});
  tools.tools.push_back({"g", "", R"({"type":"object"})"});
  tools.choice = ToolChoice::Required;
  return tools;
}

ToolRequest one_tool() {
  ToolRequest tools = two_tools();
  tools.tools.pop_back();
  return tools;
}

TEST(CallGrammar, HermesCallsOneAfterTheOther) {
  EXPECT_EQ(
      call_grammar(ToolFormat::Hermes, two_tools(), {}),
      R"({"type":"structural_tag","format":{"type":"tags_with_separator","tags":[)"
      R"({"type":"tag","begin":"<tool_call>\n{\"name\": \"f\", \"arguments\": ","content":)"
      R"({"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}},"end":"}\n</tool_call>"},)"
      R"({"type":"tag","begin":"<tool_call>\n{\"name\": \"g\", \"arguments\": ","content":)"
      R"({"type":"json_schema","json_schema":{"type":"object"}},"end":"}\n</tool_call>"}],)"
      R"("separator":"\n","at_least_one":true,"stop_after_first":false}})");
}

TEST(CallGrammar, MistralCallsAreAList) {
  EXPECT_EQ(
      call_grammar(ToolFormat::Mistral, one_tool(), {.one_call = true}),
      R"({"type":"structural_tag","format":{"type":"sequence","elements":[)"
      R"({"type":"const_string","value":"["},{"type":"tags_with_separator","tags":[)"
      R"({"type":"tag","begin":"{\"name\": \"f\", \"arguments\": ","content":)"
      R"({"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}},"end":"}"}],)"
      R"("separator":", ","at_least_one":true,"stop_after_first":true},)"
      R"({"type":"const_string","value":"]"}]}})");
}

TEST(CallGrammar, ThinkingComesFirst) {
  const std::string open =
      call_grammar(ToolFormat::Hermes, one_tool(), {.reasoning = true, .reasoning_open = true});
  EXPECT_TRUE(open.starts_with(
      R"({"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"tag","begin":"",)"
      R"("content":{"type":"any_text"},"end":"</think>"},{"type":"const_string","value":"\n\n"},)"
      R"({"type":"tags_with_separator")"))
      << open;
  const std::string may = call_grammar(ToolFormat::Hermes, one_tool(), {.reasoning = true});
  EXPECT_TRUE(may.starts_with(
      R"({"type":"structural_tag","format":{"type":"or","elements":[{"type":"tags_with_separator")"))
      << may;
}

TEST(CallGrammar, AnotherGrammarMayStandInItsPlace) {
  const std::string either =
      call_grammar(ToolFormat::Hermes, one_tool(), {.otherwise = {Grammar::Kind::Regex, "a\"+"}});
  EXPECT_TRUE(either.starts_with(R"({"type":"structural_tag","format":{"type":"or","elements":[)"
                                 R"({"type":"tags_with_separator")"))
      << either;
  EXPECT_TRUE(either.ends_with(R"(,{"type":"regex","pattern":"a\"+"}]}})")) << either;
}

TEST(CallGrammar, IsJsonForEveryFormat) {
  simdjson::dom::parser parser;
  for (const ToolFormat format :
       {ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::Mistral, ToolFormat::Gemma}) {
    for (const bool open : {false, true}) {
      const std::string text =
          call_grammar(format, two_tools(), {.reasoning = true, .reasoning_open = open});
      EXPECT_EQ(parser.parse(text).error(), simdjson::SUCCESS) << text;
    }
  }
}

// What a grammar allows, the parser of the same format finds.
TEST(CallGrammar, ACallThatItAllowsIsFoundByTheParser) {
  const std::string spec = testing::byte_tokenizer_spec().serialize();
  engine::GrammarCompiler compiler(spec, testing::kByteVocab);
  for (const auto& [format, text] : std::vector<std::pair<ToolFormat, std::string>>{
           {ToolFormat::Hermes,
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"},
           {ToolFormat::Llama3,
            R"({"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}})"},
           {ToolFormat::Mistral,
            R"([{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])"},
           {ToolFormat::Gemma,
            "{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n"
            "{\"name\": \"g\", \"parameters\": {}}"}}) {
    const Grammar grammar{Grammar::Kind::StructuralTag, call_grammar(format, two_tools(), {})};
    const auto compiled = compiler.compile(grammar);
    ASSERT_TRUE(compiled) << compiled.error().message;
    engine::GrammarMatcher matcher(*compiled);
    for (const TokenId token : testing::byte_tokens(text)) {
      ASSERT_TRUE(matcher.accept(token)) << text;
    }
    EXPECT_TRUE(matcher.accept(testing::kByteEnd)) << text;
    EXPECT_FALSE(engine::GrammarMatcher(*compiled).accept('x'));
    CallParser parser(format, {.names = {"f", "g"}, .bare = true});
    AnswerParts parts;
    parser.push(text, parts);
    parser.flush(parts, false);
    EXPECT_EQ(parts.size(), 4U) << text;
  }
}

}  // namespace
}  // namespace baton::gateway
