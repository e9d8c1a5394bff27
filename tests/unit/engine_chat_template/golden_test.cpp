// Every template of tests/golden/chat_template.json renders to the bytes that the jinja2 package
// gives, or fails where it fails. Goldens: tools/golden/make_template_goldens.py.
#include <gtest/gtest.h>
#include <simdjson.h>

#include "tests/unit/engine_chat_template/template_testing.h"

namespace baton::engine {
namespace {

using Element = simdjson::dom::element;
using Object = simdjson::dom::object;

ChatTemplateInput input_of(Element given, std::int64_t now) {
  ChatTemplateInput input;
  input.unix_seconds = now;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  for (const auto field : Object(given)) {
    if (field.key == "add_generation_prompt") {
      input.add_generation_prompt = bool(field.value);
    } else if (field.key == "tools") {
      input.tools_json = simdjson::minify(field.value);
    } else if (field.key == "kwargs") {
      input.kwargs_json = simdjson::minify(field.value);
    }
  }
  for (const Element entry : simdjson::dom::array(given["messages"])) {
    ChatMessage message;
    std::string extra;
    for (const auto field : Object(entry)) {
      if (field.key == "role") {
        message.role = std::string(std::string_view(field.value));
      } else if (field.key == "content" && field.value.is_string()) {
        message.content = std::string(std::string_view(field.value));
      } else if (field.key == "name") {
        message.name = std::string(std::string_view(field.value));
      } else {
        extra.push_back(extra.empty() ? '{' : ',');
        extra.append("\"").append(std::string_view(field.key)).append("\":");
        extra.append(simdjson::minify(field.value));
      }
    }
    if (!extra.empty()) {
      extra.push_back('}');
    }
    message.extra_json = std::move(extra);
    input.messages.push_back(std::move(message));
  }
  return input;
}

TEST(TemplateGolden, EqualsJinja2) {
  simdjson::dom::parser parser;
  Element root;
  ASSERT_EQ(parser.load("tests/golden/chat_template.json").get(root), simdjson::SUCCESS);
  std::vector<ChatTemplateInput> inputs;
  for (const Element given : simdjson::dom::array(root["inputs"])) {
    inputs.push_back(input_of(given, std::int64_t(root["now"])));
  }
  std::size_t templates = 0;
  std::size_t renderings = 0;
  for (const Element entry : simdjson::dom::array(root["templates"])) {
    const std::string name{std::string_view(entry["name"])};
    const std::string source{std::string_view(entry["source"])};
    ++templates;
    std::size_t index = 0;
    for (const Element output : simdjson::dom::array(entry["outputs"])) {
      const auto got = render(source, inputs[index]);
      const std::string where = name + " with input " + std::to_string(index++);
      ++renderings;
      if (output.is_null()) {
        EXPECT_FALSE(got) << where << " gives: " << joined(*got);
        if (!got) {
          EXPECT_EQ(got.error().code, ErrorCode::InvalidArgument) << where;
          EXPECT_TRUE(got.error().message.starts_with("chat template, line "))
              << got.error().message;
        }
        continue;
      }
      ASSERT_TRUE(got) << where << ": " << got.error().message;
      EXPECT_EQ(joined(*got), std::string_view(output)) << where;
    }
  }
  EXPECT_GE(templates, 50U);
  EXPECT_GE(renderings, 200U);
}

}  // namespace
}  // namespace baton::engine
