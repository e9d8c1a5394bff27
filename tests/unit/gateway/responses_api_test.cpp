// /v1/responses without a server: what a body may say, the events of an answer, what is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <string>
#include <vector>

#include "gateway/responses_api/event_writer.h"
#include "gateway/responses_api/parse_request.h"
#include "gateway/responses_api/response_store.h"

namespace baton::gateway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ApiResult<ApiRequest> parse(const std::string& more) {
  return parse_responses_request(R"({"model":"m","input":"hi")" + more + "}");
}

std::string at(const std::string& text, const std::string& pointer) {
  simdjson::dom::parser parser;
  simdjson::dom::element value;
  if (parser.parse(text).at_pointer(pointer).get(value) != simdjson::SUCCESS) {
    return "absent";
  }
  std::string_view string;
  return value.get(string) == simdjson::SUCCESS ? std::string(string)
                                                : std::string(simdjson::minify(value));
}

struct BadField {
  const char* json;
  const char* param;
  const char* code;
};

class BadResponsesField : public testing::TestWithParam<BadField> {};

TEST_P(BadResponsesField, IsRefusedByName) {
  const auto request = parse(GetParam().json);
  ASSERT_FALSE(request) << GetParam().json;
  EXPECT_EQ(request.error().status, 400);
  EXPECT_EQ(request.error().param, GetParam().param) << request.error().message;
  EXPECT_EQ(request.error().code, GetParam().code) << request.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Fields,
    BadResponsesField,
    testing::Values(
        BadField{R"(,"model":7)", "model", "invalid_type"},
        BadField{R"(,"input":null)", "input", "missing_required_parameter"},
        BadField{R"(,"input":5)", "input", "invalid_type"},
        BadField{R"(,"input":[])", "input", "invalid_value"},
        BadField{R"(,"input":["x"])", "input[0]", "invalid_type"},
        BadField{R"(,"input":[{"content":"x"}])", "input[0].role", "missing_required_parameter"},
        BadField{R"(,"input":[{"role":"tool","content":"x"}])", "input[0].role", "invalid_value"},
        BadField{R"(,"input":[{"role":"user"}])", "input[0].content", "missing_required_parameter"},
        BadField{R"(,"input":[{"role":"user","content":4}])", "input[0].content", "invalid_type"},
        BadField{R"(,"input":[{"role":"user","content":[{"type":"input_image"}]}])",
                 "input[0].content[0].type",
                 "unsupported_value"},
        BadField{R"(,"input":[{"role":"user","content":[{"type":"input_text"}]}])",
                 "input[0].content[0].text",
                 "invalid_type"},
        BadField{R"(,"input":[{"type":"function_call_output","output":"x"}])",
                 "input[0].type",
                 "unsupported_value"},
        BadField{R"(,"instructions":1)", "instructions", "invalid_type"},
        BadField{R"(,"max_output_tokens":0)", "max_output_tokens", "invalid_value"},
        BadField{R"(,"temperature":3)", "temperature", "invalid_value"},
        BadField{R"(,"top_logprobs":21)", "top_logprobs", "invalid_value"},
        BadField{R"(,"include":"x")", "include", "invalid_type"},
        BadField{R"(,"stream":1)", "stream", "invalid_type"},
        BadField{R"(,"stream_options":{})", "stream_options", "invalid_value"},
        BadField{R"(,"store":"yes")", "store", "invalid_type"},
        BadField{R"(,"previous_response_id":1)", "previous_response_id", "invalid_type"},
        BadField{
            R"(,"text":{"format":{"type":"json_object"}})", "text.format", "unsupported_parameter"},
        BadField{R"(,"text":{"format":{}})", "text.format.type", "missing_required_parameter"},
        BadField{R"(,"text":{"verbosity":"low"})", "text.verbosity", "unsupported_parameter"},
        BadField{R"(,"text":1)", "text", "invalid_type"},
        BadField{R"(,"tools":[{"type":"web_search"}])", "tools", "unsupported_parameter"},
        BadField{R"(,"tool_choice":"required")", "tool_choice", "unsupported_parameter"},
        BadField{R"(,"tool_choice":{"type":"function"})", "tool_choice", "unsupported_parameter"},
        BadField{R"(,"truncation":"auto")", "truncation", "unsupported_parameter"},
        BadField{R"(,"truncation":"x")", "truncation", "invalid_value"},
        BadField{R"(,"background":true)", "background", "unsupported_parameter"},
        BadField{R"(,"conversation":"c")", "conversation", "unsupported_parameter"},
        BadField{R"(,"prompt":{"id":"p"})", "prompt", "unsupported_parameter"},
        BadField{R"(,"reasoning":{"effort":"high"})", "reasoning.effort", "unsupported_parameter"},
        BadField{R"(,"service_tier":"x")", "service_tier", "invalid_value"},
        BadField{R"(,"metadata":[])", "metadata", "invalid_type"}));

TEST(ResponsesRequest, StringsAndItemsBecomeMessages) {
  const auto text = parse("");
  ASSERT_TRUE(text) << text.error().message;
  ASSERT_EQ(text->messages.size(), 1U);
  EXPECT_EQ(text->messages[0].role, "user");
  EXPECT_FALSE(text->responses.store);
  const auto items = parse(
      R"(,"input":[{"role":"developer","content":"d"},{"type":"message","id":"i","status":"completed",)"
      R"("role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]},)"
      R"({"type":"output_text","text":"b"}]},{"role":"user","content":[{"type":"input_text","text":"c"}]}],)"
      R"("instructions":"short","max_output_tokens":9,"top_logprobs":2,"store":true,)"
      R"("text":{"format":{"type":"text"},"verbosity":null},"tools":[],"truncation":"disabled",)"
      R"("reasoning":{"effort":null},"temperature":0,"include":[],"parallel_tool_calls":true)");
  ASSERT_TRUE(items) << items.error().message;
  ASSERT_EQ(items->messages.size(), 3U);
  EXPECT_EQ(items->messages[0].role, "system");
  EXPECT_EQ(items->messages[1].content, "ab");
  EXPECT_EQ(items->responses.instructions, "short");
  EXPECT_EQ(items->max_tokens, 9U);
  EXPECT_EQ(items->sampling.num_logprobs, 2);
  EXPECT_EQ(items->sampling.temperature, 0.0F);
  EXPECT_TRUE(items->responses.store);
  EXPECT_EQ(items->ignored_fields, 0U);
  EXPECT_EQ(parse(R"(,"include":["message.output_text.logprobs"])")->sampling.num_logprobs, 0);
}

struct Event {
  std::string type;
  std::string data;
};

std::vector<Event> events_of(const std::string& stream) {
  std::vector<Event> out;
  std::size_t begin = 0;
  while (begin < stream.size()) {
    const std::size_t line = stream.find("\ndata: ", begin);
    const std::size_t end = stream.find("\n\n", begin);
    out.push_back(
        {stream.substr(begin + 7, line - begin - 7), stream.substr(line + 7, end - line - 7)});
    begin = end + 2;
  }
  return out;
}

ResponseEventWriter make_writer(ResponseEventWriter::Keep keep = {}, const char* more = "") {
  return {{Endpoint::Responses, "resp_1", 7, "m", "fp"}, *parse(more), std::move(keep)};
}

TEST(ResponseEvents, ComeInTheirOrder) {
  std::string kept;
  auto writer = make_writer([&](const std::string& json, const std::string& text) {
    kept = json;
    EXPECT_EQ(text, "Hi \"you\"");
  });
  std::string out;
  writer.begin(out, 0, {});
  writer.chunk(out, {.text = "Hi "}, {});
  writer.close(out, {.text = "\"you\""}, {FinishReason::Stop}, {}, "");
  writer.finish(out, Usage{5, 3, 2});
  const auto events = events_of(out);
  std::vector<std::string> types;
  for (std::size_t i = 0; i < events.size(); ++i) {
    types.push_back(events[i].type);
    EXPECT_EQ(at(events[i].data, "/type"), events[i].type);
    EXPECT_EQ(at(events[i].data, "/sequence_number"), std::to_string(i));
  }
  EXPECT_THAT(types,
              ElementsAre("response.created",
                          "response.in_progress",
                          "response.output_item.added",
                          "response.content_part.added",
                          "response.output_text.delta",
                          "response.output_text.delta",
                          "response.output_text.done",
                          "response.content_part.done",
                          "response.output_item.done",
                          "response.completed"));
  EXPECT_EQ(at(events[0].data, "/response/status"), "in_progress");
  EXPECT_EQ(at(events[0].data, "/response/usage"), "null");
  EXPECT_EQ(at(events[4].data, "/delta"), "Hi ");
  EXPECT_EQ(at(events[6].data, "/text"), "Hi \"you\"");
  EXPECT_EQ(at(events[6].data, "/item_id"), at(events[2].data, "/item/id"));
  const std::string response = at(events[9].data, "/response");
  EXPECT_EQ(response, at("{\"a\":" + kept + "}", "/a"));
  EXPECT_EQ(at(response, "/status"), "completed");
  EXPECT_EQ(at(response, "/output/0/content/0/text"), "Hi \"you\"");
  EXPECT_EQ(at(response, "/usage/input_tokens"), "5");
  EXPECT_EQ(at(response, "/usage/input_tokens_details/cached_tokens"), "2");
  EXPECT_EQ(at(response, "/usage/total_tokens"), "8");
}

TEST(ResponseEvents, AnAnswerCutByItsLimitIsIncomplete) {
  auto writer = make_writer({}, R"(,"max_output_tokens":2,"metadata":{"k":"v"})");
  const std::vector<WholeChoice> choices{{{.text = "ab"}, {FinishReason::Length}, {}, {}}};
  const std::string json = writer.whole(choices, Usage{1, 2, 0}, "");
  EXPECT_EQ(at(json, "/status"), "incomplete");
  EXPECT_EQ(at(json, "/incomplete_details/reason"), "max_output_tokens");
  EXPECT_EQ(at(json, "/output/0/status"), "incomplete");
  EXPECT_EQ(at(json, "/max_output_tokens"), "2");
  EXPECT_EQ(at(json, "/metadata/k"), "v");
  EXPECT_EQ(at(json, "/store"), "false");
  EXPECT_EQ(at(json, "/object"), "response");
}

TEST(ResponseEvents, AFailureIsTheLastEventAndKeepsNothing) {
  auto writer = make_writer([](const std::string&, const std::string&) { FAIL(); });
  std::string out;
  writer.fail(out, bad_request("c", "", "m"));
  const auto events = events_of(out);
  EXPECT_EQ(events.front().type, "response.created");
  EXPECT_EQ(events.back().type, "response.failed");
  EXPECT_EQ(at(events.back().data, "/response/status"), "failed");
  EXPECT_EQ(at(events.back().data, "/response/error/code"), "c");
  EXPECT_EQ(at(events.back().data, "/response/error/message"), "m");
}

TEST(ResponseEvents, LogprobsGoWithTheirText) {
  auto writer = make_writer({}, R"(,"top_logprobs":1)");
  const std::vector<TextLogprob> entries{{"a", -0.5F, {{"a", -0.5F}}}};
  std::string out;
  writer.chunk(out, {.text = "a", .logprobs = entries}, {});
  EXPECT_THAT(out, HasSubstr(R"("logprobs":[{"token":"a","logprob":-0.5,"bytes":[97],)"));
  out.clear();
  writer.close(out, {}, {FinishReason::Stop}, {}, "");
  EXPECT_EQ(at(events_of(out)[0].data, "/logprobs/0/token"), "a");
}

TEST(ResponseStore, KeepsTheNewestWithinItsSize) {
  ResponseStore store(4000);
  ASSERT_TRUE(store.is_on());
  for (const char* id : {"a", "b", "c", "d"}) {
    store.put(id, {"owner", std::string(500, *id), {{"user", "x", "", ""}}});
    EXPECT_LE(store.bytes(), 4000U);
  }
  EXPECT_EQ(store.get("a"), nullptr);
  ASSERT_NE(store.get("d"), nullptr);
  EXPECT_EQ(store.get("d")->json, std::string(500, 'd'));
  EXPECT_EQ(store.get("d")->messages.size(), 1U);
  store.put("huge", {"owner", std::string(5000, 'x'), {}});
  EXPECT_EQ(store.get("huge"), nullptr);
  EXPECT_NE(store.get("d"), nullptr);
  EXPECT_TRUE(store.erase("d"));
  EXPECT_FALSE(store.erase("d"));
  EXPECT_EQ(store.get("d"), nullptr);
  EXPECT_FALSE(ResponseStore(0).is_on());
}

}  // namespace
}  // namespace baton::gateway
