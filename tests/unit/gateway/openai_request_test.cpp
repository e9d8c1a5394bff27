// Every field of the API, wrong and right: exact status, param and code.
#include "gateway/openai/openai_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace baton::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ApiResult<ApiRequest> chat(const std::string& more) {
  return parse_api_request(
      Endpoint::Chat, R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + more + "}");
}
ApiResult<ApiRequest> completion(const std::string& more) {
  return parse_api_request(Endpoint::Completions, R"({"model":"m")" + more + "}");
}

struct BadField {
  const char* json;  // after model and messages
  const char* param;
  const char* code;
};

class BadChatField : public ::testing::TestWithParam<BadField> {};

TEST_P(BadChatField, IsRefusedByName) {
  const auto request = chat(GetParam().json);
  ASSERT_FALSE(request) << GetParam().json;
  EXPECT_EQ(request.error().status, 400);
  EXPECT_EQ(request.error().type, "invalid_request_error");
  EXPECT_EQ(request.error().param, GetParam().param) << request.error().message;
  EXPECT_EQ(request.error().code, GetParam().code) << request.error().message;
  EXPECT_FALSE(request.error().message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Fields,
    BadChatField,
    ::testing::Values(
        BadField{R"(,"model":7)", "model", "invalid_type"},
        BadField{R"(,"messages":"hi")", "messages", "invalid_type"},
        BadField{R"(,"messages":[])", "messages", "invalid_value"},
        BadField{R"(,"messages":null)", "messages", "missing_required_parameter"},
        BadField{R"(,"messages":[3])", "messages[0]", "invalid_type"},
        BadField{
            R"(,"messages":[{"content":"x"}])", "messages[0].role", "missing_required_parameter"},
        BadField{
            R"(,"messages":[{"role":"boss","content":"x"}])", "messages[0].role", "invalid_value"},
        BadField{R"(,"messages":[{"role":"user"}])",
                 "messages[0].content",
                 "missing_required_parameter"},
        BadField{
            R"(,"messages":[{"role":"user","content":5}])", "messages[0].content", "invalid_type"},
        BadField{R"(,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}])",
                 "messages[0].content[0].type",
                 "unsupported_value"},
        BadField{R"(,"messages":[{"role":"user","content":[{"text":"x"}]}])",
                 "messages[0].content[0].type",
                 "missing_required_parameter"},
        BadField{R"(,"messages":[{"role":"user","content":[{"type":"text"}]}])",
                 "messages[0].content[0].text",
                 "invalid_type"},
        BadField{R"(,"max_tokens":0)", "max_tokens", "invalid_value"},
        BadField{R"(,"max_tokens":-3)", "max_tokens", "invalid_value"},
        BadField{R"(,"max_tokens":1.5)", "max_tokens", "invalid_type"},
        BadField{R"(,"max_tokens":"9")", "max_tokens", "invalid_type"},
        BadField{R"(,"max_tokens":18446744073709551615)", "max_tokens", "invalid_value"},
        BadField{R"(,"max_completion_tokens":0)", "max_completion_tokens", "invalid_value"},
        BadField{R"(,"min_tokens":-1)", "min_tokens", "invalid_value"},
        BadField{R"(,"min_tokens":9,"max_tokens":8)", "min_tokens", "invalid_value"},
        BadField{R"(,"temperature":2.5)", "temperature", "invalid_value"},
        BadField{R"(,"temperature":-0.1)", "temperature", "invalid_value"},
        BadField{R"(,"temperature":"hot")", "temperature", "invalid_type"},
        BadField{R"(,"temperature":true)", "temperature", "invalid_type"},
        BadField{R"(,"top_p":1.1)", "top_p", "invalid_value"},
        BadField{R"(,"top_k":-2)", "top_k", "invalid_value"},
        BadField{R"(,"min_p":2)", "min_p", "invalid_value"},
        BadField{R"(,"presence_penalty":2.1)", "presence_penalty", "invalid_value"},
        BadField{R"(,"frequency_penalty":-2.1)", "frequency_penalty", "invalid_value"},
        BadField{R"(,"repetition_penalty":0)", "repetition_penalty", "invalid_value"},
        BadField{R"(,"seed":1.5)", "seed", "invalid_type"},
        BadField{R"(,"seed":"x")", "seed", "invalid_type"},
        BadField{R"(,"stop":"")", "stop", "invalid_value"},
        BadField{R"(,"stop":["a","b","c","d","e"])", "stop", "invalid_value"},
        BadField{R"(,"stop":[1])", "stop[0]", "invalid_type"},
        BadField{R"(,"stop":{})", "stop", "invalid_type"},
        BadField{R"(,"stop_token_ids":[-1])", "stop_token_ids[0]", "invalid_value"},
        BadField{R"(,"stop_token_ids":3)", "stop_token_ids", "invalid_type"},
        BadField{R"(,"stream":"yes")", "stream", "invalid_type"},
        BadField{R"(,"stream_options":{"include_usage":true})", "stream_options", "invalid_value"},
        BadField{R"(,"stream":true,"stream_options":5)", "stream_options", "invalid_type"},
        BadField{R"(,"stream":true,"stream_options":{"include_usage":1})",
                 "stream_options.include_usage",
                 "invalid_type"},
        BadField{R"(,"logprobs":3)", "logprobs", "invalid_type"},
        BadField{R"(,"top_logprobs":3)", "top_logprobs", "invalid_value"},
        BadField{R"(,"logprobs":true,"top_logprobs":21)", "top_logprobs", "invalid_value"},
        BadField{R"(,"n":0)", "n", "invalid_value"},
        BadField{R"(,"n":1.5)", "n", "invalid_type"},
        BadField{R"(,"n":3,"best_of":4)", "best_of", "unsupported_parameter"},
        BadField{R"(,"n":129)", "n", "invalid_value"},
        BadField{R"(,"response_format":{"type":"json_schema"})",
                 "response_format.json_schema",
                 "missing_required_parameter"},
        BadField{R"(,"response_format":{"type":"json_schema","json_schema":{"schema":{}}})",
                 "response_format.json_schema.name",
                 "missing_required_parameter"},
        BadField{R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a"}})",
                 "response_format.json_schema.schema",
                 "missing_required_parameter"},
        BadField{
            R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":3}})",
            "response_format.json_schema.schema",
            "invalid_type"},
        BadField{R"(,"structured_outputs":{"structural_tag":"x"})",
                 "structured_outputs.structural_tag",
                 "unsupported_parameter"},
        BadField{R"(,"structured_outputs":{})", "structured_outputs", "invalid_value"},
        BadField{R"(,"structured_outputs":{"regex":"a","choice":["b"]})",
                 "structured_outputs.choice",
                 "invalid_value"},
        BadField{R"(,"guided_regex":"")", "guided_regex", "invalid_value"},
        BadField{R"(,"guided_regex":5)", "guided_regex", "invalid_type"},
        BadField{R"(,"guided_choice":[])", "guided_choice", "invalid_value"},
        BadField{R"(,"guided_choice":["a",1])", "guided_choice[1]", "invalid_type"},
        BadField{R"(,"guided_regex":"a","guided_json":{})", "guided_regex", "invalid_value"},
        BadField{R"(,"guided_regex":"a","ignore_eos":true)", "ignore_eos", "invalid_value"},
        BadField{R"(,"guided_regex":"a","min_tokens":3)", "min_tokens", "invalid_value"},
        BadField{R"(,"response_format":{"type":"x"})", "response_format.type", "invalid_value"},
        BadField{R"(,"response_format":{})", "response_format.type", "missing_required_parameter"},
        BadField{R"(,"response_format":"text")", "response_format", "invalid_type"},
        BadField{R"(,"logit_bias":{"5":101})", "logit_bias", "invalid_value"},
        BadField{R"(,"logit_bias":{"5":-100.5})", "logit_bias", "invalid_value"},
        BadField{R"(,"logit_bias":{"-5":1})", "logit_bias", "invalid_value"},
        BadField{R"(,"logit_bias":{"5x":1})", "logit_bias", "invalid_value"},
        BadField{R"(,"logit_bias":{"":1})", "logit_bias", "invalid_value"},
        BadField{R"(,"logit_bias":{"99999999999":1})", "logit_bias", "invalid_value"},
        BadField{R"(,"logit_bias":{"5":"much"})", "logit_bias.5", "invalid_type"},
        BadField{R"(,"logit_bias":[5])", "logit_bias", "invalid_type"},
        BadField{R"(,"prompt_logprobs":21)", "prompt_logprobs", "invalid_value"},
        BadField{R"(,"prompt_logprobs":true)", "prompt_logprobs", "invalid_type"},
        BadField{
            R"(,"prompt_logprobs":1,"stream":true)", "prompt_logprobs", "unsupported_parameter"},
        BadField{R"(,"echo":true)", "echo", "unsupported_parameter"},
        BadField{R"(,"user":1)", "user", "invalid_type"},
        BadField{R"(,"safety_identifier":[])", "safety_identifier", "invalid_type"},
        BadField{R"(,"prompt_cache_key":2)", "prompt_cache_key", "invalid_type"},
        BadField{R"(,"service_tier":"gold")", "service_tier", "invalid_value"},
        BadField{R"(,"service_tier":3)", "service_tier", "invalid_type"},
        BadField{R"(,"priority":"high")", "priority", "invalid_type"},
        BadField{R"(,"metadata":"x")", "metadata", "invalid_type"},
        BadField{R"(,"guided_json":[1])", "guided_json", "invalid_type"},
        BadField{R"(,"modalities":["audio"])", "modalities", "unsupported_parameter"},
        BadField{R"(,"reasoning_effort":"high")", "reasoning_effort", "unsupported_parameter"},
        BadField{R"(,"continue_final_message":true,"add_generation_prompt":true)",
                 "continue_final_message",
                 "invalid_value"},
        BadField{R"(,"chat_template_kwargs":[1])", "chat_template_kwargs", "invalid_type"},
        BadField{R"(,"add_generation_prompt":1)", "add_generation_prompt", "invalid_type"}));

class BadCompletionField : public ::testing::TestWithParam<BadField> {};

TEST_P(BadCompletionField, IsRefusedByName) {
  const auto request = completion(GetParam().json);
  ASSERT_FALSE(request) << GetParam().json;
  EXPECT_EQ(request.error().status, 400);
  EXPECT_EQ(request.error().param, GetParam().param) << request.error().message;
  EXPECT_EQ(request.error().code, GetParam().code) << request.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Fields,
    BadCompletionField,
    ::testing::Values(
        BadField{"", "prompt", "missing_required_parameter"},
        BadField{R"(,"prompt":5)", "prompt", "invalid_type"},
        BadField{R"(,"prompt":[])", "prompt", "invalid_value"},
        BadField{R"(,"prompt":["a",["b"]])", "prompt[1][0]", "invalid_type"},
        BadField{R"(,"prompt":["a",null])", "prompt[1]", "invalid_type"},
        BadField{R"(,"prompt":["a","b"],"n":65)", "n", "invalid_value"},
        BadField{R"(,"prompt":[1,"b"])", "prompt[1]", "invalid_type"},
        BadField{R"(,"prompt":[-1])", "prompt[0]", "invalid_value"},
        BadField{R"(,"prompt":[1,2.5])", "prompt[1]", "invalid_type"},
        BadField{R"(,"prompt":[[]])", "prompt[0]", "invalid_value"},
        BadField{R"(,"prompt":[true])", "prompt[0]", "invalid_type"},
        BadField{R"(,"prompt":"x","logprobs":6)", "logprobs", "invalid_value"},
        BadField{R"(,"prompt":"x","logprobs":true)", "logprobs", "invalid_type"},
        BadField{R"(,"prompt":"x","echo":1)", "echo", "invalid_type"},
        BadField{R"(,"prompt":"x","max_tokens":0)", "max_tokens", "invalid_value"},
        BadField{R"(,"prompt":"x","echo":true,"max_tokens":-1)", "max_tokens", "invalid_value"},
        BadField{R"(,"prompt":"x","echo":true,"logprobs":1,"stream":true)",
                 "echo",
                 "unsupported_parameter"},
        BadField{R"(,"prompt":"x","suffix":"y")", "suffix", "unsupported_parameter"},
        BadField{R"(,"prompt":"x","best_of":2)", "best_of", "unsupported_parameter"}));

TEST(OpenAiRequest, ErrorsDoNotRepeatLongTexts) {
  std::string role(2000, 'x');
  for (std::size_t i = 0; i + 1 < role.size(); i += 2) {
    role.replace(i, 2, "\u00e9");  // cut between characters only
  }
  const auto parsed = parse_api_request(
      Endpoint::Chat, R"({"model":"m","messages":[{"role":")" + role + R"(","content":"a"}]})");
  ASSERT_FALSE(parsed);
  EXPECT_LE(parsed.error().message.size(), 1000U);
  EXPECT_GT(parsed.error().message.size(), 900U);
  EXPECT_EQ(static_cast<unsigned char>(parsed.error().message.back()), 0xA9U);
  EXPECT_LT(model_not_found(role).message.size(), 400U);
}

TEST(OpenAiRequest, ReadsTheTier) {
  const auto tier = [](const std::string& field) {
    return parse_api_request(Endpoint::Completions, R"({"model":"m","prompt":"a")" + field + "}");
  };
  EXPECT_FALSE(tier("")->names_tier);
  EXPECT_FALSE(tier(R"(,"service_tier":null)")->names_tier);
  EXPECT_TRUE(tier(R"(,"service_tier":"auto")")->names_tier);
  EXPECT_EQ(tier(R"(,"service_tier":"auto")")->service_tier, std::nullopt);
  EXPECT_EQ(tier(R"(,"service_tier":"flex")")->service_tier, Tier::Flex);
  EXPECT_EQ(tier(R"(,"service_tier":"priority")")->service_tier, Tier::Priority);
  EXPECT_EQ(tier(R"(,"service_tier":"scale")")->service_tier, Tier::Default);
  EXPECT_EQ(tier(R"(,"service_tier":"gold")").error().param, "service_tier");
  EXPECT_EQ(tier(R"(,"service_tier":3)").error().param, "service_tier");
  EXPECT_TRUE(tier(R"(,"priority":-3)"));
}

TEST(OpenAiRequest, DefaultsAreThoseOfOpenAi) {
  const auto request = chat("");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->model, "m");
  EXPECT_EQ(request->sampling.temperature, 1.0F);
  EXPECT_EQ(request->sampling.top_p, 1.0F);
  EXPECT_EQ(request->sampling.num_logprobs, -1);
  EXPECT_FALSE(request->seed);
  EXPECT_FALSE(request->max_tokens);
  EXPECT_FALSE(request->stream);
  EXPECT_TRUE(request->add_generation_prompt);
}

TEST(OpenAiRequest, NullIsAbsent) {
  const auto request =
      chat(R"(,"max_tokens":null,"temperature":null,"stop":null,"n":null,"tools":null,"seed":null,)"
           R"("stream":null,"response_format":null,"logprobs":null,"logit_bias":null)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->sampling.temperature, 1.0F);
}

TEST(OpenAiRequest, ReadsWhatTheAnswerMustBe) {
  struct Case {
    const char* json;
    Grammar grammar;
    const char* param;
  };
  const std::string schema = R"({"type":"object"})";
  for (
      const Case& each : {
          Case{R"(,"response_format":{"type":"text"})", {}, ""},
          Case{R"(,"response_format":{"type":"json_object"})",
               {Grammar::Kind::Json, ""},
               "response_format"},
          Case{
              R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,)"
              R"("schema":{"type": "object"}}})",
              {Grammar::Kind::JsonSchema, schema},
              "response_format"},
          Case{R"(,"structured_outputs":{"json":"{\"type\":\"object\"}","regex":null})",
               {Grammar::Kind::JsonSchema, schema},
               "structured_outputs"},
          Case{R"(,"structured_outputs":{"json_object":true,"disable_any_whitespace":true})",
               {Grammar::Kind::Json, ""},
               "structured_outputs"},
          Case{R"(,"guided_json":{"type": "object"},"response_format":{"type":"text"})",
               {Grammar::Kind::JsonSchema, schema},
               "guided_json"},
          Case{R"(,"guided_regex":"a+")", {Grammar::Kind::Regex, "a+"}, "guided_regex"},
          Case{R"(,"guided_grammar":"root ::= \"a\"")",
               {Grammar::Kind::Ebnf, "root ::= \"a\""},
               "guided_grammar"},
          Case{R"(,"guided_choice":["b","a\"\\\n\u00e9","b"])",
               {Grammar::Kind::Ebnf, "root ::= \"a\\\"\\\\\\x0a\u00e9\" | \"b\""},
               "guided_choice"},
          Case{R"(,"guided_choice":["two","one","on","once","\u00e9","\u00e8"])",
               {Grammar::Kind::Ebnf,
                "root ::= \"on\" (\"\" | \"ce\" | \"e\") | \"two\" | \"\u00e8\" | \"\u00e9\""},
               "guided_choice"},
      }) {
    const auto request = chat(each.json);
    ASSERT_TRUE(request) << each.json << ": " << request.error().message;
    EXPECT_EQ(request->output.grammar.kind, each.grammar.kind) << each.json;
    EXPECT_EQ(request->output.grammar.text, each.grammar.text) << each.json;
    EXPECT_EQ(request->output.param, each.param);
  }
}

TEST(OpenAiRequest, TemperatureZeroIsZero) {
  EXPECT_EQ(chat(R"(,"temperature":0)")->sampling.temperature, 0.0F);
}

TEST(OpenAiRequest, NewerTokenLimitWins) {
  EXPECT_EQ(chat(R"(,"max_completion_tokens":7,"max_tokens":9)")->max_tokens, 7U);
  EXPECT_EQ(chat(R"(,"max_tokens":9)")->max_tokens, 9U);
}

TEST(OpenAiRequest, LastOfTwoEqualNamesCounts) {
  const auto request = chat(R"(,"max_tokens":"wrong","max_tokens":5,"max_tokens":6)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->max_tokens, 6U);
}

TEST(OpenAiRequest, JoinsTextPartsAndAcceptsNullContentOfAssistant) {
  const auto request = parse_api_request(Endpoint::Chat,
                                         R"({"model":"m","messages":[
        {"role":"developer","content":"be brief"},
        {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":null},
        {"role":"assistant","content":null,"tool_calls":[
          {"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"c1","content":"42"}]})");
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_EQ(request->messages.size(), 4U);
  EXPECT_EQ(request->messages[0].role, "system");
  EXPECT_EQ(request->messages[1].content, "ab");
  EXPECT_EQ(request->messages[2].content, "");
  EXPECT_NE(request->messages[2].extra_json.find(R"("id":"c1")"), std::string::npos);
  EXPECT_EQ(request->messages[3].extra_json, R"({"tool_call_id":"c1"})");
}

TEST(OpenAiRequest, UnknownAndBookkeepingFieldsAreIgnored) {
  const auto request =
      chat(R"(,"user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto","zzz":1,)"
           R"("kv_transfer_params":{"x":1},"prompt_cache_key":"k","tools":[],"stop":[])");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->ignored_fields, 1U);
}

TEST(OpenAiRequest, PromptsOfCompletions) {
  EXPECT_EQ(completion(R"(,"prompt":"x")")->prompts[0].text, "x");
  EXPECT_FALSE(completion(R"(,"prompt":"x")")->prompt_is_list);
  EXPECT_EQ(completion(R"(,"prompt":["x"])")->prompts[0].text, "x");
  EXPECT_THAT(completion(R"(,"prompt":[1,2])")->prompts[0].ids, ElementsAre(1, 2));
  const auto lists = completion(R"(,"prompt":[[3,4],"y",[5]],"n":2,"best_of":2)");
  ASSERT_TRUE(lists) << lists.error().message;
  ASSERT_EQ(lists->prompts.size(), 3U);
  EXPECT_TRUE(lists->prompt_is_list);
  EXPECT_TRUE(lists->prompts[0].is_ids);
  EXPECT_THAT(lists->prompts[0].ids, ElementsAre(3, 4));
  EXPECT_EQ(lists->prompts[1].text, "y");
  EXPECT_THAT(lists->prompts[2].ids, ElementsAre(5));
  EXPECT_EQ(lists->n, 2U);
  EXPECT_EQ(completion(R"(,"prompt":"x","logprobs":3)")->sampling.num_logprobs, 3);
}

TEST(OpenAiRequest, BiasIsKeptByToken) {
  const auto request = chat(R"(,"logit_bias":{"50":-100,"7":2.5,"50":100})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_THAT(request->sampling.logit_bias, ElementsAre(LogitBias{7, 2.5F}, LogitBias{50, 100.0F}));
  std::string many = R"(,"logit_bias":{)";
  for (std::size_t i = 0; i <= kMaxLogitBias; ++i) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  }
  const auto refused = chat(many + "}");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "logit_bias");
}

TEST(OpenAiRequest, FieldsOfTheClientAreKept) {
  const auto request =
      chat(R"(,"user":"u","safety_identifier":"s","prompt_cache_key":"k","service_tier":"flex",)"
           R"("priority":-3,"metadata":{"a": "b"})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->user, "u");
  EXPECT_EQ(request->safety_identifier, "s");
  EXPECT_EQ(request->prompt_cache_key, "k");
  EXPECT_EQ(request->service_tier, Tier::Flex);
  EXPECT_EQ(request->priority, -3);
  EXPECT_EQ(request->metadata_json, R"({"a":"b"})");
  EXPECT_EQ(request->ignored_fields, 0U);
}

TEST(OpenAiRequest, EchoMayAskForNoToken) {
  const auto request = completion(R"(,"prompt":"x","echo":true,"max_tokens":0,"logprobs":1)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->echo);
  EXPECT_TRUE(request->hides_output());
  EXPECT_TRUE(request->echoes_logprobs());
  EXPECT_FALSE(completion(R"(,"prompt":"x","echo":true)")->hides_output());
}

TEST(OpenAiRequest, AContinuedMessageGetsNoGenerationPrompt) {
  EXPECT_FALSE(chat(R"(,"continue_final_message":true)")->add_generation_prompt);
  EXPECT_TRUE(chat(R"(,"continue_final_message":false)")->add_generation_prompt);
}

TEST(OpenAiRequest, ShapeOfVllmBench) {
  const auto request =
      completion(R"(,"prompt":"x","repetition_penalty":1.0,"max_tokens":128,"logprobs":null,)"
                 R"("stream":true,"temperature":0.0,"ignore_eos":true,)"
                 R"("stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->ignore_eos);
  EXPECT_TRUE(request->include_usage);
  EXPECT_TRUE(request->continuous_usage);
}

TEST(OpenAiRequest, SeedsOfAllSizes) {
  EXPECT_EQ(chat(R"(,"seed":-1)")->seed, ~std::uint64_t{0});
  EXPECT_EQ(chat(R"(,"seed":18446744073709551615)")->seed, ~std::uint64_t{0});
  EXPECT_EQ(chat(R"(,"seed":0)")->seed, 0U);
}

TEST(OpenAiRequest, UnescapesText) {
  const auto request = completion(R"(,"prompt":"a\n\u00e9\ud83d\ude00\"")");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->prompts[0].text, "a\n\xc3\xa9\xf0\x9f\x98\x80\"");
}

struct BadJson {
  std::string body;
  const char* where;
};

TEST(OpenAiRequest, MalformedJsonNamesTheByte) {
  const std::string deep = "{\"model\":" + std::string(100, '[') + std::string(100, ']') + "}";
  const BadJson cases[] = {
      {R"({"model":)", "at byte 9"},
      {"", "at byte 0"},
      {"{", "at byte 1"},
      {R"({"a":1,})", "at byte 7"},
      {R"({"a" 1})", "at byte 5"},
      {R"({"a":tru})", "at byte 5"},
      {R"({"a":01})", "leading zero"},
      {R"({"a":1e999})", "out of range at byte 5"},
      {R"({"a":123456789012345678901234567890})", "out of range at byte 5"},
      {R"({"a":"x)", "a string is not closed at byte 5"},
      {"{\"a\":\"\xff\"}", "not valid UTF-8 at byte 6"},
      {"{\"a\":\"\n\"}", "control character"},
      {R"({"a":"\q"})", "escape"},
      {R"({"a":"\ud800"})", "surrogate"},
      {R"({"a":1} x)", "at byte 8"},
      {deep, "nesting deeper than 64 levels at byte 72"},
  };
  for (const BadJson& bad : cases) {
    const auto request = parse_api_request(Endpoint::Chat, bad.body);
    ASSERT_FALSE(request) << bad.body;
    EXPECT_EQ(request.error().status, 400);
    EXPECT_EQ(request.error().code, "invalid_json") << bad.body;
    EXPECT_THAT(request.error().message, HasSubstr(bad.where)) << bad.body;
  }
}

TEST(OpenAiRequest, BodyMustBeAnObject) {
  for (const char* body : {"[]", "3", "null", "\"x\""}) {
    const auto request = parse_api_request(Endpoint::Chat, body);
    ASSERT_FALSE(request);
    EXPECT_EQ(request.error().code, "invalid_type") << body;
  }
}

TEST(OpenAiRequest, ModelIsRequired) {
  const auto request = parse_api_request(Endpoint::Chat, "{}");
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().param, "model");
  EXPECT_EQ(request.error().code, "missing_required_parameter");
}

TEST(OpenAiRequest, EveryCutOfABodyIsAnErrorNotACrash) {
  const std::string body =
      R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"\u00e9"}]}],)"
      R"("stop":["a"],"stream":true,"stream_options":{"include_usage":true},"temperature":0.5})";
  ASSERT_TRUE(parse_api_request(Endpoint::Chat, body));
  for (std::size_t cut = 0; cut < body.size(); ++cut) {
    EXPECT_FALSE(parse_api_request(Endpoint::Chat, body.substr(0, cut))) << cut;
  }
}

}  // namespace
}  // namespace baton::gateway
