#include "engine/grammar/grammar.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/byte_tokenizer.h"

namespace baton::engine {
namespace {

using testing::byte_tokens;
using testing::kByteEnd;
using testing::kByteEos;
using testing::kByteStart;
using testing::kByteVocab;

constexpr std::uint32_t kPadded = kByteVocab + 40;  // a model's logits may be more than its tokens

class GrammarTest : public ::testing::Test {
 protected:
  std::shared_ptr<const CompiledGrammar> compile(Grammar::Kind kind, const std::string& text) {
    auto compiled = compiler_.compile({kind, text});
    EXPECT_TRUE(compiled.has_value()) << compiled.error().message;
    return compiled.value_or(nullptr);
  }
  // Whether `text` can be written whole.
  bool accepts(const std::shared_ptr<const CompiledGrammar>& grammar, const std::string& text) {
    GrammarMatcher matcher(grammar);
    for (const TokenId token : byte_tokens(text)) {
      if (!is_allowed(matcher, token) || !matcher.accept(token)) {
        return false;
      }
    }
    return is_allowed(matcher, kByteEnd) && matcher.accept(kByteEnd) && matcher.is_terminated();
  }
  static std::vector<TokenId> allowed(GrammarMatcher& matcher) {
    std::vector<std::uint32_t> words(matcher.num_words());
    std::vector<TokenId> tokens;
    const bool is_masked = matcher.fill(words);
    for (std::uint32_t token = 0; token < kPadded; ++token) {
      if (!is_masked || (words[token / 32] >> (token % 32) & 1U) != 0) {
        tokens.push_back(static_cast<TokenId>(token));
      }
    }
    return tokens;
  }
  static bool is_allowed(GrammarMatcher& matcher, TokenId token) {
    const auto tokens = allowed(matcher);
    return std::ranges::find(tokens, token) != tokens.end();
  }
  // One random output; empty when it does not end within `limit` tokens.
  std::string walk(const std::shared_ptr<const CompiledGrammar>& grammar,
                   std::uint32_t seed,
                   std::size_t limit) {
    std::mt19937 random(seed);
    GrammarMatcher matcher(grammar);
    std::string text;
    for (std::size_t i = 0; i < limit; ++i) {
      const auto tokens = allowed(matcher);
      EXPECT_FALSE(matcher.is_stuck()) << text;
      // What ends something comes up often enough that it does end.
      TokenId token = tokens[random() % tokens.size()];
      for (const char c : {'"', '}', ']'}) {
        if (random() % 2 == 0 && is_allowed(matcher, c)) {
          token = c;
        }
      }
      if (is_allowed(matcher, kByteEnd)) {
        token = kByteEnd;
      }
      EXPECT_TRUE(matcher.accept(token));
      if (token == kByteEnd || token == kByteEos) {
        return text;
      }
      text += static_cast<char>(token);
    }
    return "";
  }

  const std::string tokenizer_ = testing::byte_tokenizer_spec().serialize();
  GrammarCompiler compiler_{tokenizer_, kPadded};
};

TEST_F(GrammarTest, ASchemaAllowsItsJsonOnOneLine) {
  const auto grammar = compile(Grammar::Kind::JsonSchema, R"({"type": "object",
      "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 12},
                     "b": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 2}},
      "required": ["a"]})");
  EXPECT_TRUE(accepts(grammar, R"({"a": 12})"));
  EXPECT_TRUE(accepts(grammar, R"({"a": 0, "b": []})"));
  EXPECT_TRUE(accepts(grammar, R"({"a": 0, "b": ["x", "y"]})"));
  EXPECT_FALSE(accepts(grammar, R"({"a": 13})"));
  EXPECT_FALSE(accepts(grammar, R"({"a": 1, "b": ["z"]})"));
  EXPECT_FALSE(accepts(grammar, R"({"a": 1, "b": ["x", "x", "x"]})"));
  EXPECT_FALSE(accepts(grammar, R"({"b": []})"));
  EXPECT_FALSE(accepts(grammar, R"({"a": 1, "c": 2})"));
  EXPECT_FALSE(accepts(grammar, R"({"a":  1})"));
  EXPECT_FALSE(accepts(grammar, R"({"a": 1} )"));
}

TEST_F(GrammarTest, OtherKinds) {
  const auto json = compile(Grammar::Kind::Json, "");
  EXPECT_TRUE(accepts(json, R"({"a": [1, null, {"b": "c"}], "d": -1.5e3})"));
  EXPECT_FALSE(accepts(json, "[]")) << "an object is asked for";
  const auto regex = compile(Grammar::Kind::Regex, "(yes|no)[0-9]{2}");
  EXPECT_TRUE(accepts(regex, "yes42"));
  EXPECT_FALSE(accepts(regex, "yes4"));
  const auto rules = compile(Grammar::Kind::Ebnf, "root ::= item (\",\" item)*\nitem ::= [a-c]+");
  EXPECT_TRUE(accepts(rules, "ab,c"));
  EXPECT_FALSE(accepts(rules, "ab,"));
  const auto tag = compile(Grammar::Kind::StructuralTag, R"({"format": {"type": "tag",
      "begin": "<call>", "content": {"type": "json_schema", "json_schema": {"type": "object",
      "properties": {"n": {"type": "integer"}}, "required": ["n"]}}, "end": "</call>"}})");
  EXPECT_TRUE(accepts(tag, R"(<call>{"n": 1}</call>)"));
  EXPECT_FALSE(accepts(tag, R"(<call>{}</call>)"));
}

TEST_F(GrammarTest, SpecialTokensAreNoTextAndOnlyStopsEndAWholeOutput) {
  GrammarMatcher matcher(compile(Grammar::Kind::JsonSchema, R"({"type": "string"})"));
  ASSERT_TRUE(matcher.accept('"'));
  for (const TokenId special : {kByteStart, kByteEnd, kByteEos, TokenId{kByteVocab + 3}}) {
    EXPECT_FALSE(is_allowed(matcher, special)) << special;
    EXPECT_FALSE(matcher.accept(special));
  }
  ASSERT_TRUE(matcher.accept('"'));
  EXPECT_EQ(allowed(matcher), (std::vector<TokenId>{kByteEnd, kByteEos}));
  ASSERT_TRUE(matcher.accept(kByteEos));
  EXPECT_TRUE(matcher.is_terminated());
  EXPECT_EQ(allowed(matcher), (std::vector<TokenId>{kByteEnd, kByteEos}))
      << "a request that goes on past its end gets stops";
  EXPECT_FALSE(matcher.is_stuck());
}

TEST_F(GrammarTest, NoStringHoldsARawControlCharacter) {
  GrammarMatcher matcher(
      compile(Grammar::Kind::JsonSchema, R"({"type": "string", "maxLength": 9})"));
  ASSERT_TRUE(matcher.accept('"'));
  for (TokenId token = 0; token < 0x20; ++token) {
    EXPECT_FALSE(is_allowed(matcher, token)) << token;
  }
  EXPECT_TRUE(is_allowed(matcher, ' '));
  EXPECT_TRUE(accepts(compile(Grammar::Kind::Regex, "\\t"), "\t")) << "elsewhere they are text";
}

TEST_F(GrammarTest, CountsDraftsAndRollsBack) {
  GrammarMatcher matcher(compile(Grammar::Kind::Regex, "abc*d"));
  EXPECT_EQ(matcher.count_accepted(byte_tokens("abccx")), 4U);
  EXPECT_EQ(matcher.count_accepted(byte_tokens("x")), 0U);
  EXPECT_TRUE(is_allowed(matcher, 'a')) << "nothing has changed";
  for (const TokenId token : byte_tokens("abd")) {
    ASSERT_TRUE(matcher.accept(token));
  }
  ASSERT_TRUE(matcher.accept(kByteEnd));
  matcher.rollback(2);
  EXPECT_FALSE(matcher.is_terminated());
  EXPECT_EQ(allowed(matcher), byte_tokens("cd"));
  EXPECT_FALSE(matcher.accept('a'));
  EXPECT_TRUE(matcher.accept('c'));
}

TEST_F(GrammarTest, RandomOutputsOfASchemaAreItsJson) {
  for (const char* schema :
       {R"({"type": "object", "properties": {
              "s": {"type": "string", "minLength": 2, "maxLength": 5},
              "n": {"type": "number", "minimum": -1, "maximum": 2.5},
              "e": {"enum": [1, "two", null, {"three": [3]}]},
              "d": {"type": "string", "format": "date"},
              "l": {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1}},
            "required": ["s", "n", "e", "d", "l"],
            "$defs": {"node": {"type": "object", "properties": {
              "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
              "required": ["next"]}}})",
        R"({"type": "array", "items": {"type": ["string", "integer", "null"]}, "maxItems": 3})",
        R"({"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1})",
        R"({"type": "object", "patternProperties": {"^k[0-9]+$": {"type": "integer"}}})"}) {
    const auto grammar = compile(Grammar::Kind::JsonSchema, schema);
    std::size_t ended = 0;
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      const std::string text = walk(grammar, seed, 400);
      if (text.empty()) {
        continue;
      }
      ++ended;
      simdjson::dom::parser parser;
      simdjson::dom::element value;
      EXPECT_EQ(parser.parse(text).get(value), simdjson::SUCCESS) << text;
    }
    EXPECT_GT(ended, 10U) << schema;
  }
}

TEST_F(GrammarTest, WhatWouldBeIgnoredIsRefused) {
  const std::pair<Grammar, const char*> cases[] = {
      {{Grammar::Kind::JsonSchema, R"({"not": {}})"}, "'not'"},
      {{Grammar::Kind::JsonSchema, R"({"type": "integer", "minimum": 1, "multipleOf": 3})"},
       "multipleOf"},
      {{Grammar::Kind::JsonSchema, R"({"type": "integer", "minimum": 3, "maximum": 1})"}, "range"},
      {{Grammar::Kind::JsonSchema, R"({"type": "string", "pattern": "^\".*\"$"})"}, "pattern"},
      {{Grammar::Kind::JsonSchema, R"({"type": "string", "pattern": ".]"})"}, "pattern"},
      {{Grammar::Kind::JsonSchema, R"({"type": "string", "pattern": "\\bа"})"}, "boundary"},
      {{Grammar::Kind::Regex, "a(?=b)"}, "Lookahead"},
      {{Grammar::Kind::Regex, "a^b"}, "'^'"},
      {{Grammar::Kind::Regex, "(a"}, "parenthesis"},
      {{Grammar::Kind::Ebnf, "root ::= missing"}, "missing"},
      {{Grammar::Kind::Ebnf, "start ::= \"a\""}, "root"},
      {{Grammar::Kind::StructuralTag, R"({"format": {"type": "no such"}})"}, "no such"},
      {{Grammar::Kind::StructuralTag,
        R"({"format": {"type": "json_schema", "json_schema": {"not": {}}}})"},
       "'not'"},
  };
  for (const auto& [grammar, text] : cases) {
    const Status checked = check_grammar(grammar);
    ASSERT_FALSE(checked.has_value()) << grammar.text;
    EXPECT_EQ(checked.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(checked.error().message.find(text), std::string::npos) << checked.error().message;
    EXPECT_FALSE(compiler_.compile(grammar).has_value());
  }
}

TEST_F(GrammarTest, AGrammarWithoutAWayOnIsStuckAndOffersTheEnd) {
  GrammarMatcher matcher(compile(Grammar::Kind::Ebnf, "root ::= root"));
  EXPECT_EQ(allowed(matcher), (std::vector<TokenId>{kByteEnd, kByteEos}));
  EXPECT_TRUE(matcher.is_stuck());
}

TEST_F(GrammarTest, TooManyPlacesAtOnceAreRefusedWhereTheyAreKnown) {
  std::string rules = "root ::=";
  for (int i = 0; i < 300; ++i) {
    rules += std::string(" [a-") + static_cast<char>('b' + i % 20) + "]?";
  }
  const Status checked = check_grammar({Grammar::Kind::Ebnf, rules});
  ASSERT_FALSE(checked.has_value());
  EXPECT_NE(checked.error().message.find("too ambiguous"), std::string::npos)
      << checked.error().message;

  // These come together behind the first letter.
  rules = "root ::= \"a\" rule0";
  for (int i = 1; i < 300; ++i) {
    rules += " | \"a\" rule" + std::to_string(i);
  }
  for (int i = 0; i < 300; ++i) {
    rules += "\nrule" + std::to_string(i) + " ::= \"b\" rule" + std::to_string((i + 1) % 300) +
             " | \"c" + std::to_string(i) + "\"";
  }
  GrammarMatcher matcher(compile(Grammar::Kind::Ebnf, rules));
  ASSERT_TRUE(matcher.accept('a'));
  EXPECT_EQ(allowed(matcher), (std::vector<TokenId>{kByteEnd, kByteEos}));
  EXPECT_TRUE(matcher.is_stuck());
}

TEST_F(GrammarTest, CompiledGrammarsAreSharedAndTheCacheIsBounded) {
  const Grammar grammar{Grammar::Kind::Regex, "ab+"};
  EXPECT_EQ(compiler_.find(grammar), nullptr);
  const auto first = compile(grammar.kind, grammar.text);
  EXPECT_EQ(compile(grammar.kind, grammar.text), first);
  EXPECT_EQ(compiler_.find(grammar), first);
  EXPECT_EQ(compiler_.find({Grammar::Kind::Ebnf, "ab+"}), nullptr) << "the kind is part of it";
  EXPECT_GT(first->bytes(), 0U);

  GrammarCompiler small(tokenizer_, kPadded, {.cache_bytes = 1});
  ASSERT_TRUE(small.compile(grammar).has_value());
  EXPECT_NE(small.find(grammar), nullptr) << "the last one stays";
  ASSERT_TRUE(small.compile({Grammar::Kind::Regex, "c"}).has_value());
  EXPECT_EQ(small.find(grammar), nullptr);
}

}  // namespace
}  // namespace baton::engine
