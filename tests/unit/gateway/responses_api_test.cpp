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

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

struct Refusal {
  const char* json;
  const char* param;
  const char* code;
};

class BadResponsesField : public ::testing::TestWithParam<Refusal> {};

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
    ::testing::Values(
        Refusal{R"(,"model":7)", "model", "invalid_type"},
        Refusal{R"(,"input":null)", "input", "missing_required_parameter"},
        Refusal{R"(,"input":5)", "input", "invalid_type"},
        Refusal{R"(,"input":[])", "input", "invalid_value"},
        Refusal{R"(,"input":["x"])", "input[0]", "invalid_type"},
        Refusal{R"(,"input":[{"content":"x"}])", "input[0].role", "missing_required_parameter"},
        Refusal{R"(,"input":[{"role":"tool","content":"x"}])", "input[0].role", "invalid_value"},
        Refusal{R"(,"input":[{"role":"user"}])", "input[0].content", "missing_required_parameter"},
        Refusal{R"(,"input":[{"role":"user","content":4}])", "input[0].content", "invalid_type"},
        Refusal{R"(,"input":[{"role":"user","content":[{"type":"input_image"}]}])",
                "input[0].content[0].type",
                "unsupported_value"},
        Refusal{R"(,"input":[{"role":"user","content":[{"type":"input_text"}]}])",
                "input[0].content[0].text",
                "invalid_type"},
        Refusal{R"(,"input":[{"type":"function_call_output","output":"x"}])",
                "input[0].call_id",
                "missing_required_parameter"},
        Refusal{R"(,"input":[{"type":"function_call_output","call_id":"c"}])",
                "input[0].output",
                "missing_required_parameter"},
        Refusal{R"(,"input":[{"type":"function_call","call_id":"c","name":"f"}])",
                "input[0].arguments",
                "missing_required_parameter"},
        Refusal{R"(,"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"[1]"}])",
                "input[0].arguments",
                "invalid_value"},
        Refusal{R"(,"input":[{"type":"item_reference","id":"x"}])",
                "input[0].type",
                "unsupported_value"},
        Refusal{R"(,"input":[{"type":7}])", "input[0].type", "invalid_type"},
        Refusal{R"(,"instructions":1)", "instructions", "invalid_type"},
        Refusal{R"(,"max_output_tokens":0)", "max_output_tokens", "invalid_value"},
        Refusal{R"(,"temperature":3)", "temperature", "invalid_value"},
        Refusal{R"(,"top_logprobs":21)", "top_logprobs", "invalid_value"},
        Refusal{R"(,"include":"x")", "include", "invalid_type"},
        Refusal{R"(,"stream":1)", "stream", "invalid_type"},
        Refusal{R"(,"stream_options":{})", "stream_options", "invalid_value"},
        Refusal{R"(,"store":"yes")", "store", "invalid_type"},
        Refusal{R"(,"previous_response_id":1)", "previous_response_id", "invalid_type"},
        Refusal{R"(,"text":{"format":{"type":"x"}})", "text.format.type", "invalid_value"},
        Refusal{R"(,"text":{"format":{"type":"json_schema"}})",
                "text.format.name",
                "missing_required_parameter"},
        Refusal{R"(,"text":{"format":{"type":"json_schema","name":"n","schema":3}})",
                "text.format.schema",
                "invalid_type"},
        Refusal{R"(,"text":{"format":{}})", "text.format.type", "missing_required_parameter"},
        Refusal{R"(,"text":{"verbosity":"low"})", "text.verbosity", "unsupported_parameter"},
        Refusal{R"(,"text":1)", "text", "invalid_type"},
        Refusal{R"(,"tools":[{"type":"web_search"}])", "tools[0].type", "unsupported_value"},
        Refusal{R"(,"tools":[{"type":"function","function":{"name":"f"}}])",
                "tools[0].name",
                "missing_required_parameter"},
        Refusal{R"(,"tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}])",
                "tools[1].name",
                "invalid_value"},
        Refusal{R"(,"tool_choice":"required")", "tool_choice", "invalid_value"},
        Refusal{R"(,"tool_choice":{"type":"function"})",
                "tool_choice.name",
                "missing_required_parameter"},
        Refusal{R"(,"tool_choice":{"type":"function","name":"f"})", "tool_choice", "invalid_value"},
        Refusal{R"(,"max_tool_calls":0)", "max_tool_calls", "invalid_value"},
        Refusal{R"(,"truncation":"auto")", "truncation", "unsupported_parameter"},
        Refusal{R"(,"truncation":"x")", "truncation", "invalid_value"},
        Refusal{R"(,"background":true)", "background", "unsupported_parameter"},
        Refusal{R"(,"conversation":"c")", "conversation", "unsupported_parameter"},
        Refusal{R"(,"prompt":{"id":"p"})", "prompt", "unsupported_parameter"},
        Refusal{R"(,"reasoning":{"effort":"high"})", "reasoning.effort", "unsupported_parameter"},
        Refusal{R"(,"service_tier":"x")", "service_tier", "invalid_value"},
        Refusal{R"(,"metadata":[])", "metadata", "invalid_type"}));

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

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","name":"f","description":"d","strict":true,"parameters":)"
    R"({"type":"object","properties":{"a":{"type":"integer"}}}},{"type":"function","name":"g"}])";

TEST(ResponsesRequest, ToolsAreFlat) {
  const auto request = parse(kTools);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->tools.choice, ToolChoice::Auto);
  EXPECT_EQ(request->tools.tools_json(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{"a":{"type":"integer"}}}}},)"
            R"({"type":"function","function":{"name":"g","description":"","parameters":)"
            R"({"type":"object","properties":{}}}}])");
  EXPECT_TRUE(request->tools.tools[0].strict);
  const auto named =
      parse(std::string(kTools) + R"(,"tool_choice":{"type":"function","name":"g"})");
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->tools.choice, ToolChoice::Named);
  EXPECT_EQ(named->tools.tools.size(), 1U);
  const auto allowed =
      parse(std::string(kTools) + R"(,"tool_choice":{"type":"allowed_tools","mode":"required",)"
                                  R"("tools":[{"type":"function","name":"f"}]})");
  ASSERT_TRUE(allowed) << allowed.error().message;
  EXPECT_EQ(allowed->tools.choice, ToolChoice::Required);
  EXPECT_EQ(allowed->tools.tools.front().name, "f");
}

TEST(ResponsesRequest, FormatsBecomeGrammars) {
  EXPECT_EQ(parse(R"(,"text":{"format":{"type":"json_object"}})")->output.grammar.kind,
            Grammar::Kind::Json);
  const auto schema = parse(
      R"(,"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object"}}})");
  ASSERT_TRUE(schema) << schema.error().message;
  EXPECT_EQ(schema->output.grammar.kind, Grammar::Kind::JsonSchema);
  EXPECT_EQ(schema->output.grammar.text, R"({"type":"object"})");
  EXPECT_EQ(schema->output.param, "text.format");
}

TEST(ResponsesRequest, CallsAndOutputsBecomeMessages) {
  const auto request = parse(
      R"(,"input":[{"role":"user","content":"q"},{"type":"reasoning","id":"rs","summary":[]},)"
      R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"wait"}]},)"
      R"({"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": 1}","id":"fc"},)"
      R"({"type":"function_call","call_id":"c2","name":"g","arguments":""},)"
      R"({"type":"function_call_output","call_id":"c1","output":"one"},)"
      R"({"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]},)"
      R"({"type":"function_call","call_id":"c3","name":"g","arguments":"{}"}])");
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_EQ(request->messages.size(), 5U);
  EXPECT_EQ(request->messages[1].content, "wait");
  EXPECT_EQ(request->messages[1].extra_json,
            R"({"tool_calls":[{"id":"c1","type":"function","function":{"name":"f",)"
            R"("arguments":{"a":1}}},{"id":"c2","type":"function","function":{"name":"g",)"
            R"("arguments":{}}}]})");
  EXPECT_EQ(request->messages[2].role, "tool");
  EXPECT_EQ(request->messages[2].extra_json, R"({"tool_call_id":"c1"})");
  EXPECT_EQ(request->messages[3].content, "two");
  EXPECT_EQ(request->messages[4].role, "assistant");
  EXPECT_EQ(request->messages[4].content, "");
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
  auto writer = make_writer([&](const std::string& json, const engine::ChatMessage& turn) {
    kept = json;
    EXPECT_EQ(turn.role, "assistant");
    EXPECT_EQ(turn.content, "Hi \"you\"");
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

using Kind = AnswerPart::Kind;

const AnswerParts kParts{{Kind::Reasoning, 0, "hm", ""},
                         {Kind::Content, 0, "Wait.", ""},
                         {Kind::CallBegin, 0, "f", "call_1"},
                         {Kind::CallArguments, 0, "{\"a\":1}", ""},
                         {Kind::CallBegin, 1, "g", "call_2"},
                         {Kind::CallArguments, 1, "{}", ""}};

TEST(ResponseEvents, ReasoningTextAndCallsAreItemsOfTheirOwn) {
  engine::ChatMessage kept;
  auto writer = make_writer(
      [&](const std::string&, const engine::ChatMessage& turn) { kept = turn; }, kTools);
  std::string out;
  writer.begin(out, 0, {});
  for (const AnswerPart& part : kParts) {
    const AnswerParts one{part};
    writer.chunk(out, {.parts = &one}, {});
  }
  const AnswerParts none;
  writer.close(out, {.parts = &none}, {.finish = FinishReason::Stop, .has_calls = true}, {}, "");
  writer.finish(out, Usage{5, 9, 0, 2});
  std::vector<std::string> types;
  std::string places;
  for (const Event& event : events_of(out)) {
    types.push_back(event.type.substr(event.type.find('.') + 1));
    places += at(event.data, "/output_index") == "absent" ? "-" : at(event.data, "/output_index");
    if (at(event.data, "/item_id") != "absent") {
      const std::string item = "/response/output/" + at(event.data, "/output_index") + "/id";
      EXPECT_EQ(at(event.data, "/item_id"), at(events_of(out).back().data, item));
    }
  }
  EXPECT_THAT(types,
              ElementsAre("created",
                          "in_progress",
                          "output_item.added",
                          "content_part.added",
                          "reasoning_text.delta",
                          "reasoning_text.done",
                          "content_part.done",
                          "output_item.done",
                          "output_item.added",
                          "content_part.added",
                          "output_text.delta",
                          "output_text.done",
                          "content_part.done",
                          "output_item.done",
                          "output_item.added",
                          "function_call_arguments.delta",
                          "function_call_arguments.done",
                          "output_item.done",
                          "output_item.added",
                          "function_call_arguments.delta",
                          "function_call_arguments.done",
                          "output_item.done",
                          "completed"));
  EXPECT_EQ(places, "--00000011111122223333-");
  const std::string response = at(events_of(out).back().data, "/response");
  EXPECT_EQ(at(response, "/output/0/content/0/text"), "hm");
  EXPECT_EQ(at(response, "/output/1/content/0/text"), "Wait.");
  EXPECT_EQ(at(response, "/output/2/call_id"), "call_1");
  EXPECT_EQ(at(response, "/output/2/arguments"), "{\"a\":1}");
  EXPECT_EQ(at(response, "/output/3/name"), "g");
  EXPECT_EQ(at(response, "/output/3/status"), "completed");
  EXPECT_EQ(at(response, "/usage/output_tokens_details/reasoning_tokens"), "2");
  EXPECT_EQ(at(response, "/tools/0/name"), "f") << "tools come back as they were sent";
  EXPECT_EQ(kept.content, "Wait.");
  EXPECT_EQ(at(kept.extra_json, "/tool_calls/1/function/name"), "g");

  auto same = make_writer({}, kTools);
  const std::vector<WholeChoice> choices{
      {{.parts = &kParts}, {.finish = FinishReason::Stop, .has_calls = true}, {}, {}}};
  EXPECT_EQ(same.whole(choices, Usage{5, 9, 0, 2}, ""), response);
}

TEST(ResponseEvents, ACallThatIsCutIsIncompleteAndNotKeptAsACall) {
  engine::ChatMessage kept{"", "", "", "unset"};
  auto writer = make_writer(
      [&](const std::string&, const engine::ChatMessage& turn) { kept = turn; }, kTools);
  const AnswerParts parts{{Kind::CallBegin, 0, "f", "call_1"},
                          {Kind::CallArguments, 0, "{\"a\":", ""}};
  const std::vector<WholeChoice> choices{{{.parts = &parts}, {FinishReason::Length}, {}, {}}};
  const std::string json = writer.whole(choices, Usage{5, 9, 0}, "");
  EXPECT_EQ(at(json, "/output/0/status"), "incomplete");
  EXPECT_EQ(kept.extra_json, "");
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
  auto writer = make_writer([](const std::string&, const engine::ChatMessage&) { FAIL(); });
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
