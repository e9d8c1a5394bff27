// Tools through the whole parser of a chat request.
#include "gateway/tools/tool_request.h"

#include <gtest/gtest.h>

#include "gateway/openai/openai_request.h"

namespace baton::gateway {
namespace {

constexpr const char* kTwoTools =
    R"("tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,)"
    R"("parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},)"
    R"({"type":"function","function":{"name":"g"}}])";

ApiResult<ApiRequest> parse(const std::string& fields,
                            const std::string& messages = R"([{"role":"user","content":"x"}])") {
  return parse_api_request(Endpoint::Chat,
                           R"({"model":"m","messages":)" + messages + "," + fields + "}");
}

// "param: code" of the error.
std::string refused(const std::string& fields,
                    const std::string& messages = R"([{"role":"user","content":"x"}])") {
  const auto request = parse(fields, messages);
  if (request) {
    return "accepted";
  }
  EXPECT_EQ(request.error().status, 400);
  return request.error().param + ": " + request.error().code;
}

std::vector<std::string> names(const ToolRequest& tools) {
  std::vector<std::string> out;
  for (const FunctionTool& tool : tools.tools) {
    out.push_back(tool.name);
  }
  return out;
}

TEST(ToolRequest, ToolsAreAutoUnlessSaid) {
  const auto request = parse(kTwoTools);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->tools.choice, ToolChoice::Auto);
  EXPECT_TRUE(request->tools.parallel);
  EXPECT_EQ(request->tools.tools_json(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object","properties":{"a":{"type":"integer"}}}}},)"
            R"({"type":"function","function":{"name":"g","description":"","parameters":)"
            R"({"type":"object","properties":{}}}}])");
  EXPECT_EQ(parse(R"("tools":[],"tool_choice":"auto")")->tools.choice, ToolChoice::None);
  EXPECT_EQ(parse(R"("tools":null,"tool_choice":null)")->tools.choice, ToolChoice::None);
}

TEST(ToolRequest, Choices) {
  const std::string tools = std::string(kTwoTools) + R"(,"tool_choice":)";
  const auto none = parse(tools + R"("none")");
  EXPECT_EQ(none->tools.choice, ToolChoice::None);
  EXPECT_TRUE(none->tools.tools.empty());
  EXPECT_EQ(parse(tools + R"("required","parallel_tool_calls":false)")->tools.choice,
            ToolChoice::Required);
  EXPECT_FALSE(parse(tools + R"("auto","parallel_tool_calls":false)")->tools.parallel);
  const auto named = parse(tools + R"({"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(named->tools.choice, ToolChoice::Named);
  EXPECT_EQ(names(named->tools), std::vector<std::string>{"g"});
  const auto allowed =
      parse(tools + R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[)"
                    R"({"type":"function","function":{"name":"f"}}]}})");
  ASSERT_TRUE(allowed) << allowed.error().message;
  EXPECT_EQ(allowed->tools.choice, ToolChoice::Required);
  EXPECT_EQ(names(allowed->tools), std::vector<std::string>{"f"});
}

TEST(ToolRequest, WrongFieldsAreNamed) {
  const auto tool = [](const std::string& function) {
    return R"("tools":[{"type":"function","function":)" + function + "}]";
  };
  EXPECT_EQ(refused(R"("tools":{})"), "tools: invalid_type");
  EXPECT_EQ(refused(R"("tools":[1])"), "tools[0]: invalid_type");
  EXPECT_EQ(refused(R"("tools":[{"function":{"name":"f"}}])"),
            "tools[0].type: missing_required_parameter");
  EXPECT_EQ(refused(R"("tools":[{"type":"custom","custom":{}}])"),
            "tools[0].type: unsupported_value");
  EXPECT_EQ(refused(R"("tools":[{"type":"function"}])"),
            "tools[0].function: missing_required_parameter");
  EXPECT_EQ(refused(tool("{}")), "tools[0].function.name: missing_required_parameter");
  EXPECT_EQ(refused(tool(R"({"name":"a b"})")), "tools[0].function.name: invalid_value");
  EXPECT_EQ(refused(tool(R"({"name":")" + std::string(65, 'a') + "\"}")),
            "tools[0].function.name: invalid_value");
  EXPECT_EQ(refused(tool(R"({"name":"f","parameters":[]})")),
            "tools[0].function.parameters: invalid_type");
  EXPECT_EQ(refused(tool(R"({"name":"f","parameters":{"type":"array"}})")),
            "tools[0].function.parameters.type: invalid_value");
  EXPECT_EQ(refused(R"("tools":[{"type":"function","function":{"name":"f"}},)"
                    R"({"type":"function","function":{"name":"f"}}])"),
            "tools[1].function.name: invalid_value");
  const std::string tools = std::string(kTwoTools) + R"(,"tool_choice":)";
  EXPECT_EQ(refused(tools + R"("always")"), "tool_choice: invalid_value");
  EXPECT_EQ(refused(tools + "7"), "tool_choice: invalid_type");
  EXPECT_EQ(refused(tools + R"({"type":"function","function":{"name":"h"}})"),
            "tool_choice: invalid_value");
  EXPECT_EQ(refused(tools + R"({"type":"allowed_tools","allowed_tools":{"tools":[]}})"),
            "tool_choice.allowed_tools.tools: invalid_type");
  EXPECT_EQ(refused(R"("tool_choice":"required")"), "tool_choice: invalid_value");
  EXPECT_EQ(refused(R"("functions":[{"name":"f"}])"), "functions: unsupported_parameter");
  EXPECT_EQ(refused(R"("function_call":"auto")"), "function_call: unsupported_parameter");
}

TEST(ToolRequest, MessagesOfEarlierTurns) {
  const auto request = parse(
      R"("stop":null)",
      R"([{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[)"
      R"({"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\": [1]}"}},)"
      R"({"id":"call_2","function":{"name":"g","arguments":""}}]},)"
      R"({"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"4"}]}])");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->messages[1].content, "");
  EXPECT_EQ(request->messages[1].extra_json,
            R"({"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f",)"
            R"("arguments":{"a":[1]}}},{"id":"call_2","type":"function","function":{"name":"g",)"
            R"("arguments":{}}}]})");
  EXPECT_EQ(request->messages[2].content, "4");
  EXPECT_EQ(request->messages[2].name, "f");
  EXPECT_EQ(request->messages[2].extra_json, R"({"tool_call_id":"call_1"})");
}

TEST(ToolRequest, WrongMessagesAreNamed) {
  const auto assistant = [](const std::string& call) {
    return R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[)" + call + "]}]";
  };
  const std::string path = "messages[1].tool_calls[0]";
  EXPECT_EQ(refused(R"("stop":null)", assistant("1")), path + ": invalid_type");
  EXPECT_EQ(refused(R"("stop":null)", assistant(R"({"id":"a","type":"function"})")),
            path + ".function: missing_required_parameter");
  for (const char* arguments : {"[1]", "{", "7", "{} {}"}) {
    EXPECT_EQ(refused(R"("stop":null)",
                      assistant(R"({"id":"a","function":{"name":"f","arguments":")" +
                                std::string(arguments) + "\"}}")),
              path + ".function.arguments: invalid_value");
  }
  EXPECT_EQ(refused(R"("stop":null)", R"([{"role":"tool","content":"x"}])"),
            "messages[0].tool_call_id: missing_required_parameter");
}

}  // namespace
}  // namespace baton::gateway
