#include "gateway/tools/tool_format.h"

#include <gtest/gtest.h>

#include "tests/support/byte_tokenizer.h"

namespace baton::gateway {
namespace {

ModelFormat detected(const std::string& source, const std::string& architecture = "llama") {
  engine::TokenizerSpec spec;
  spec.chat_template = source;
  spec.architecture = architecture;
  const auto made = engine::ChatTemplate::create(source, architecture);
  EXPECT_TRUE(made);
  return detect_format(spec, made ? made->get() : nullptr);
}

TEST(ToolFormat, IsReadFromTheTemplate) {
  const std::string shown = "{% if tools %}{{ tools | tojson }}{% endif %}";
  EXPECT_EQ(detected(shown + "{{ '<tool_call>' }}").tools, ToolFormat::Hermes);
  EXPECT_EQ(detected(shown + "{{ '[TOOL_CALLS]' }}").tools, ToolFormat::Mistral);
  EXPECT_EQ(detected(shown + "{{ '<|start_header_id|>' }}").tools, ToolFormat::Llama3);
  EXPECT_EQ(detected(shown + "{{ '<tool_call><function=f>' }}").tools, ToolFormat::Unknown);
  EXPECT_EQ(detected(shown).tools, ToolFormat::Unknown);
  EXPECT_TRUE(detected(shown).template_has_tools);
}

TEST(ToolFormat, TemplatesWithoutToolsGetThePromptOfTheFamily) {
  const ModelFormat plain = detected("{{ messages[0].content }}");
  EXPECT_FALSE(plain.template_has_tools);
  EXPECT_EQ(plain.tools, ToolFormat::Hermes);
  EXPECT_FALSE(plain.has_reasoning);
  EXPECT_EQ(detected("", "gemma3").tools, ToolFormat::Gemma);
  EXPECT_TRUE(detected("{{ messages[0].content }}{{ '<think>' }}").has_reasoning);
}

TEST(ToolFormat, SomeTemplatesRefuseSeveralCalls) {
  const std::string source =
      "{{ tools | tojson }}{% for m in messages %}{% if 'tool_calls' in m %}"
      "{% if m.tool_calls | length != 1 %}{{ raise_exception('one') }}{% endif %}"
      "{{ m.tool_calls[0].function.name }}{% endif %}{% endfor %}";
  EXPECT_TRUE(detected(source).one_call);
  EXPECT_FALSE(detected("{{ tools | tojson }}").one_call);
}

TEST(ToolFormat, TheConfigurationGoesFirst) {
  const ModelFormat plain = detected("{{ messages[0].content }}");
  EXPECT_EQ(tool_format_of(plain, {}), ToolFormat::Hermes);
  EXPECT_EQ(tool_format_of(plain, {"off", "auto"}), ToolFormat::Off);
  EXPECT_EQ(tool_format_of(plain, {"llama3", "auto"}), ToolFormat::Llama3);
  EXPECT_EQ(tool_format_of(plain, {"mistral", "auto"}), ToolFormat::Mistral);
  EXPECT_FALSE(has_reasoning(plain, {}));
  EXPECT_TRUE(has_reasoning(plain, {"auto", "think"}));
  EXPECT_FALSE(has_reasoning(detected("{{ '<think>' }}"), {"auto", "off"}));
}

TEST(ToolFormat, SpecialTokensOfCallsAreKnown) {
  engine::TokenizerSpec spec;
  spec.tokens = {"a", "[TOOL_CALLS]", "<tool_call>", "<think>"};
  spec.kinds = {engine::TokenKind::Normal,
                engine::TokenKind::Control,
                engine::TokenKind::UserDefined,
                engine::TokenKind::Control};
  const ModelFormat format = detect_format(spec, nullptr);
  EXPECT_EQ(format.tool_tokens, std::vector<TokenId>{1});
  EXPECT_EQ(format.reasoning_tokens, std::vector<TokenId>{3});
}

TEST(ToolFormat, APromptMayOpenTheReasoning) {
  const auto tokenizer = engine::Tokenizer::create(testing::byte_tokenizer_spec());
  ASSERT_TRUE(tokenizer);
  const auto opens = [&](std::string_view prompt) {
    return opens_reasoning(**tokenizer, testing::byte_tokens(prompt));
  };
  EXPECT_TRUE(opens("assistant\n<think>"));
  EXPECT_TRUE(opens("assistant\n<think>\n"));
  EXPECT_FALSE(opens("assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens("assistant\n"));
  EXPECT_FALSE(opens(""));
}

}  // namespace
}  // namespace baton::gateway
