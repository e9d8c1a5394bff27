#include "engine/grammar/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "engine/grammar/text_check.h"

namespace baton::engine {
namespace {

std::string normal(std::string_view text) {
  const auto schema = normalise_schema(text);
  EXPECT_TRUE(schema.has_value()) << schema.error().message;
  return schema ? schema->text : "";
}

std::string refusal(std::string_view text) {
  const auto schema = normalise_schema(text);
  EXPECT_FALSE(schema.has_value()) << schema->text;
  if (schema) {
    return "";
  }
  EXPECT_EQ(schema.error().code, ErrorCode::InvalidArgument);
  return schema.error().message;
}

TEST(NormaliseSchema, SchemasThatBranchWithoutEndAreRefusedAtOnce) {
  std::string branches = R"({"$ref": "#/$defs/A"})";
  for (int i = 0; i < 100; ++i) {
    branches += R"(, {"$ref": "#/$defs/A"})";
  }
  EXPECT_NE(refusal(R"({"oneOf": [{"$ref": "#/$defs/A"}, {"type": "string"}],
                        "$defs": {"A": {"anyOf": [)" +
                    branches + "]}}}")
                .find("oneOf"),
            std::string::npos);
  // Objects whose properties lead back to themselves.
  std::string fields;
  std::string names;
  for (int i = 0; i < 30; ++i) {
    fields += (i == 0 ? "\"p" : ", \"p") + std::to_string(i) + R"(": {"$ref": "#/$defs/A"})";
    names += (i == 0 ? "\"p" : ", \"p") + std::to_string(i) + "\"";
  }
  EXPECT_NE(refusal(R"({"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}],
                        "$defs": {"A": {"type": "object", "properties": {)" +
                    fields + R"(}, "required": [)" + names + "]}}}")
                .find("oneOf"),
            std::string::npos);
}

TEST(NormaliseSchema, SaysDefaultsOutrightAndDropsNotes) {
  EXPECT_EQ(
      normal(R"({"title": "T", "type": "object", "x-order": 1,
                       "properties": {"a": {"type": "string", "description": "d"}}})"),
      R"({"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false})");
  EXPECT_EQ(normal(R"({"type": "object"})"),
            R"({"type":"object","properties":{},"additionalProperties":{}})");
  EXPECT_EQ(normal(R"({"type": "array"})"), R"({"type":"array","items":{}})");
  EXPECT_EQ(normal(R"({"type": "array", "prefixItems": [{"type": "null"}]})"),
            R"({"type":"array","prefixItems":[{"type":"null"}],"items":false})");
  EXPECT_EQ(normal("true"), "{}");
  EXPECT_EQ(normal(R"({"items": {"type": "boolean"}})"),
            R"({"type":"array","items":{"type":"boolean"}})")
      << "a limit without a type chooses it";
}

TEST(NormaliseSchema, GivesRequiredPropertiesASchema) {
  EXPECT_EQ(normal(R"({"type": "object", "required": ["b", "a", "b"],
                       "properties": {"a": {"type": "null"}}})"),
            R"({"type":"object","properties":{"a":{"type":"null"},"b":{}},"required":["b","a"],)"
            R"("additionalProperties":false})");
  EXPECT_NE(refusal(R"({"type": "object", "required": ["b"], "additionalProperties": false})")
                .find("required property 'b'"),
            std::string::npos);
}

TEST(NormaliseSchema, KeepsTheValuesThatTheTypeAllows) {
  EXPECT_EQ(normal(R"({"type": "string", "enum": ["a", 1, "b", null]})"), R"({"enum":["a","b"]})");
  EXPECT_EQ(normal(R"({"type": ["integer", "null"], "enum": [1, 1.5, null, "x"]})"),
            R"({"enum":[1,null]})");
  EXPECT_EQ(normal(R"({"const": {"a": [1, "\n"]}})"), R"({"enum":[{"a":[1,"\n"]}]})");
  refusal(R"({"type": "string", "enum": [1]})");
  refusal(R"({"enum": []})");
}

TEST(NormaliseSchema, WritesOneOfAsAChoiceOnlyWhereCasesCannotOverlap) {
  EXPECT_EQ(normal(R"({"oneOf": [{"type": "string"}, {"type": "integer"}]})"),
            R"({"anyOf":[{"type":"string"},{"type":"integer"}]})");
  normal(R"({"oneOf": [
      {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
      {"type": "object", "properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"]}]})");
  normal(R"({"$defs": {"A": {"const": 1}, "B": {"const": 2}},
             "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]})");
  for (const char* schema :
       {R"({"oneOf": [{"type": "number"}, {"type": "integer"}]})",
        R"({"oneOf": [{"const": 1}, {"const": 1.0}]})",
        R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}}},
                      {"type": "object", "properties": {"kind": {"const": "b"}}}]})",
        R"({"oneOf": [{}, {"type": "string"}]})"}) {
    EXPECT_NE(refusal(schema).find("oneOf"), std::string::npos) << schema;
  }
}

TEST(NormaliseSchema, WritesLengthsAndLettersAsExpressions) {
  EXPECT_EQ(normal(R"({"type": "string", "minLength": 2})"), R"({"type":"string","minLength":2})");
  EXPECT_EQ(normal(R"({"type": "string", "maxLength": 1000000})"),
            R"({"type":"string","minLength":0,"maxLength":5000})");
  EXPECT_EQ(normal(R"({"type": "string", "pattern": "^[à-é]\\\\é\\é$"})"),
            R"({"type":"string","pattern":"^[\\u{e0}-\\u{e9}]\\\\\\u{e9}\\u{e9}$"})");
}

TEST(NormaliseSchema, RefusesByNameAndPlaceWhatItCannotHoldTo) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not": {"type": "string"}})", "schema#: the keyword 'not' is not supported"},
      {R"({"properties": {"a": {"if": {}}}})", "schema#/properties/a: the keyword 'if'"},
      {R"({"type": "array", "uniqueItems": true})", "'uniqueItems'"},
      {R"({"type": "array", "contains": {}})", "'contains'"},
      {R"({"dependentRequired": {}})", "'dependentRequired'"},
      {R"({"type": "object", "properties": {"a": {"$id": "b"}}})", "'$id'"},
      {R"({"allOf": [{"type": "string"}, {"type": "string"}]})", "'allOf'"},
      {R"({"type": "object", "anyOf": [{}]})", "'type' beside 'anyOf'"},
      {R"({"anyOf": [{}], "minLength": 1})", "'minLength' beside 'anyOf'"},
      {R"({"$ref": "#", "const": 1})", "'const' beside '$ref'"},
      {R"({"$ref": "http://example.com/a"})", "'$ref' names"},
      {R"({"$ref": "#/properties/a", "properties": {"a": {}}})", "'properties' beside '$ref'"},
      {R"({"$ref": "#/$defs/none"})", "'#/$defs/none'"},
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", "'maxLength' beside 'pattern'"},
      {R"({"type": "string", "format": "idn-email"})", "\"idn-email\""},
      {R"({"type": "number", "multipleOf": 0.1})", "'multipleOf'"},
      {R"({"type": "text"})", "no type 'text'"},
      {R"({"minimum": 1, "maxLength": 2})", "needs a 'type'"},
      {R"({"type": "string", "minLength": -1})", "'minLength'"},
      {R"({"type": "string", "minLength": 1e9})", "above"},
      {R"({"type": "array", "maxItems": 1e9})", "above"},
      {R"({"type": "object", "patternProperties": {"^a": {}}, "properties": {"b": {}}})",
       "'patternProperties' beside 'properties'"},
      {R"({"type": "object", "minProperties": 2})", "'minProperties'"},
      {R"({"type": "array", "items": [{}]})", "prefixItems"},
      {R"(false)", "accepts nothing"},
      {R"(3)", "must be an object"},
      {R"({"type": )", "not JSON"},
  };
  for (const auto& [schema, text] : cases) {
    EXPECT_NE(refusal(schema).find(text), std::string::npos) << schema << ": " << refusal(schema);
  }
}

TEST(NormaliseSchema, IsBounded) {
  std::string deep;
  for (int i = 0; i < 60; ++i) {
    deep += R"({"type":"array","items":)";
  }
  EXPECT_FALSE(normalise_schema(deep + "{}" + std::string(60, '}')).has_value());
  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 3000; ++i) {
    wide += "\"p" + std::to_string(i) + "\":{},";
  }
  EXPECT_NE(refusal(wide + "\"z\":{}}}").find("more than"), std::string::npos);
  EXPECT_NE(refusal("\"" + std::string(SchemaLimits::kBytes, 'a') + "\"").find("limit"),
            std::string::npos);
}

TEST(CheckRegex, CountsRepetitionsWrittenOut) {
  const auto size = [](std::string_view regex) { return check_regex(regex, 1000, "it"); };
  EXPECT_EQ(size("^[a-z]{1,64}(\\.[a-z]{1,8}){0,8}$").value_or(0), 2 + 64 + 8 * 9);
  EXPECT_EQ(size(".[^a]\\S\\d").value_or(0), 3 * 5 + 1) << "wide classes count more";
  EXPECT_FALSE(size("((a{1,100}){1,100}){1,100}").has_value());
  EXPECT_TRUE(size("(a?b*c{0,4}){12}").has_value());
  EXPECT_FALSE(size("(a?b*c{0,4}){13}").has_value()) << "more than 24 optional parts";
  EXPECT_FALSE(size("(ab){0,25}").has_value());
  EXPECT_FALSE(size("a{99999999999999999999}").has_value());
  EXPECT_TRUE(size("a{x}[{9999999}]\\{9999999").has_value()) << "no repetitions";
  EXPECT_FALSE(size(std::string(101, '(') + std::string(101, ')')).has_value());
  EXPECT_FALSE(check_regex(std::string(TextLimits::kRegexBytes + 1, 'a'), 1U << 20, "it"));
  EXPECT_TRUE(size("[").has_value()) << "what it means is not looked at here";
}

TEST(CheckRules, LooksPastTexts) {
  EXPECT_TRUE(
      check_rules("root ::= \"((((\" [({] item{1,3} # ((((\nitem ::= \"\\\"\"").has_value());
  EXPECT_FALSE(check_rules("root ::= (\"abc\"{1,1000}){1,1000}").has_value());
}

}  // namespace
}  // namespace baton::engine
