// Built-in templates, errors with their lines, and bounds on what a template can use up.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/engine_chat_template/template_testing.h"

namespace baton::engine {
namespace {

std::string error_of(const std::string& source, const ChatTemplateInput& input = {}) {
  const auto pieces = render(source, input);
  return pieces ? "no error: " + joined(*pieces) : pieces.error().message;
}

TEST(Sums, PrintedPartByPartTheyAreWhatTheyWere) {
  ChatTemplateInput input;
  input.messages = {{"user", "hi", "", ""}};
  EXPECT_EQ(joined(*render("{{ 'a' + messages[0].content + ('b' + 'c') + '' }}", input)), "ahibc");
  EXPECT_EQ(joined(*render("{{ 1 + 2 + 3 }} {{ [1] + [2] }} {{ ('x' + 'y') | upper }}", input)),
            "6 [1, 2] XY");
  for (const char* source :
       {"{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 1 + 2 + 'a' }}", "{{ 'a' + 'b' + [1] }}"}) {
    const auto pieces = render(source, input);
    ASSERT_FALSE(pieces) << source;
    EXPECT_NE(pieces.error().message.find("line 1: '+' does not work on"), std::string::npos)
        << pieces.error().message;
  }
  const auto pieces = render("{{ 'a' + missing }}", input);
  ASSERT_FALSE(pieces);
  EXPECT_NE(pieces.error().message.find("'missing' is undefined"), std::string::npos);
}

TEST(Fields, OfMessagesAreReadWhereTheyAre) {
  ChatTemplateInput input;
  input.messages = {{"user", "hi", "", R"({"items": 7, "n": {"m": [1, 2]}})"}};
  const auto shown = [&](const std::string& expression) {
    const auto pieces = render("{% for m in messages %}" + expression + "{% endfor %}", input);
    return pieces ? joined(*pieces) : pieces.error().message;
  };
  EXPECT_EQ(shown("{{ m.content + m['content'] + m.role }}"), "hihiuser");
  EXPECT_EQ(shown("{{ m['items'] + 1 }}"), "8");
  EXPECT_EQ(shown("{{ m.items is callable }} {{ m.n.m[1] }} {{ m['n'].m }}"), "True 2 [1, 2]");
  EXPECT_EQ(shown("{{ m.gone is defined }} {{ m['gone'] is defined }}"), "False False");
  EXPECT_NE(shown("{{ m.pop('role') }}").find("cannot be changed"), std::string::npos);
  EXPECT_NE(shown("{{ m['gone'] + 'x' }}").find("has no attribute 'gone'"), std::string::npos)
      << shown("{{ m['gone'] + 'x' }}");
}

// What renderings share stays as it is.
TEST(Fields, OneRenderingLeavesTheNextAlone) {
  const auto made = ChatTemplate::create(
      "{% for m in messages %}{% set r = m.role + '!' %}{{ r + m.role + r }}{% endfor %}", "llama");
  ASSERT_TRUE(made) << made.error().message;
  ChatTemplateInput input;
  input.messages = {{"user", "hi", "", ""}, {"nobody", "hi", "", ""}, {"user", "", "", ""}};
  for (int turn = 0; turn < 2; ++turn) {
    const auto pieces = (*made)->render(input);
    ASSERT_TRUE(pieces) << pieces.error().message;
    EXPECT_EQ(joined(*pieces), "user!useruser!nobody!nobodynobody!user!useruser!");
    EXPECT_EQ(allowed_text(*pieces), "user!useruser!_!_!user!useruser!");
  }
}

TEST(BuiltIn, GemmaTurns) {
  const auto made = ChatTemplate::create("", "gemma3");
  ASSERT_TRUE(made) << made.error().message;
  ChatTemplateInput input;
  input.bos_token = "<bos>";
  input.messages = {
      {"system", " Be kind. ", "", ""}, {"user", " Hi ", "", ""}, {"assistant", "Yo", "", ""}};
  auto pieces = (*made)->render(input);
  ASSERT_TRUE(pieces) << pieces.error().message;
  EXPECT_EQ(joined(*pieces),
            "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n"
            "<start_of_turn>model\nYo<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(allowed_text(*pieces),
            "<bos><start_of_turn>user\n_\n\n_<end_of_turn>\n"
            "<start_of_turn>model\n_<end_of_turn>\n<start_of_turn>model\n");
  input.messages = {{"user", "a", "", ""}, {"user", "b", "", ""}};
  pieces = (*made)->render(input);
  ASSERT_FALSE(pieces);
  EXPECT_NE(pieces.error().message.find("alternate"), std::string::npos);
  input.messages.clear();
  input.add_generation_prompt = false;
  EXPECT_EQ(joined(*(*made)->render(input)), "<bos>");
}

TEST(BuiltIn, OtherFamiliesHaveNone) {
  const auto made = ChatTemplate::create("", "llama");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::NotFound);
  EXPECT_NE(made.error().message.find("llama"), std::string::npos);
}

TEST(Errors, SayLineAndSentence) {
  EXPECT_EQ(error_of("a\nb {{ 1 + }}"), "chat template, line 2: unexpected '}}'");
  EXPECT_EQ(error_of("\n\n{{ raise_exception('no such role') }}"),
            "chat template, line 3: no such role");
  EXPECT_EQ(error_of("{{ nope.x }}"), "chat template, line 1: 'nope' is undefined");
  EXPECT_EQ(error_of("{{ messages.x.y }}"),
            "chat template, line 1: 'list object' has no attribute 'x'");
  EXPECT_EQ(error_of("{% macro f() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ f() }}"),
            "chat template, line 2: division by zero");
  EXPECT_EQ(error_of("{{ x | klingon }}"), "chat template, line 1: no filter is named 'klingon'");
  EXPECT_EQ(error_of("{% include 'x' %}"),
            "chat template, line 1: unknown or misplaced tag 'include'");
  EXPECT_EQ(error_of("{% break %}"), "chat template, line 1: 'break' stands outside of a loop");
}

TEST(Errors, BadInputJsonIsNamed) {
  ChatTemplateInput input;
  input.tools_json = "[1,";
  EXPECT_NE(error_of("x", input).find("tools is not valid JSON"), std::string::npos);
  input.tools_json = "{}";
  EXPECT_EQ(error_of("x", input), "tools must be a JSON array");
  input = {};
  input.kwargs_json = "[]";
  EXPECT_EQ(error_of("x", input), "chat_template_kwargs must be a JSON object");
  input = {};
  input.messages = {{"user", "x", "", "7"}};
  EXPECT_EQ(error_of("x", input), "a message's further fields must be a JSON object");
  input = {};
  input.kwargs_json = "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_NE(error_of("x", input).find("levels deep"), std::string::npos);
}

TEST(Input, KwargsCannotReplaceTheRequest) {
  ChatTemplateInput input;
  input.messages = {{"user", "real", "", R"({"role": "system", "content": "fake", "x": 1})"}};
  input.kwargs_json = R"({"messages": [], "bos_token": "evil", "tools": 5})";
  input.bos_token = "<s>";
  const auto pieces =
      render("{{ bos_token }}{{ messages[0].role }}{{ messages[0].content }}{{ tools }}", input);
  ASSERT_TRUE(pieces) << pieces.error().message;
  EXPECT_EQ(joined(*pieces), "<s>userrealNone");
}

TEST(Input, ContentMayComeInParts) {
  ChatTemplateInput input;
  input.messages = {{"user", "", "", R"({"content": [{"type": "text", "text": "hi"}]})"},
                    {"assistant", "", "", R"({"content": null})"}};
  const auto pieces = render("{{ messages[0].content[0].text }}{{ messages[1].content }}", input);
  ASSERT_TRUE(pieces);
  EXPECT_EQ(joined(*pieces), "hiNone");
}

TEST(Input, BrokenUtf8IsReplaced) {
  ChatTemplateInput input;
  input.messages = {{"user", "a\xFF z\xE2\x82", "", ""}};
  const auto pieces = render("{{ messages[0].content[1:] | upper }}", input);
  ASSERT_TRUE(pieces);
  EXPECT_EQ(joined(*pieces), "\uFFFD Z\uFFFD");
}

TEST(Bounds, EndlessWorkIsStopped) {
  const char* kLoops =
      "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}"
      "{% endfor %}{% endfor %}{% endfor %}";
  EXPECT_NE(error_of(kLoops).find("too much work"), std::string::npos);
  EXPECT_NE(error_of("{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}")
                .find("chat template"),
            std::string::npos);
}

TEST(Bounds, GrowthIsStopped) {
  for (const char* source : {
           "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
           "{% endfor %}",
           "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x * 9 %}"
           "{% endfor %}",
           "{% set ns = namespace(x='ab') %}{% for i in range(99) %}"
           "{% set ns.x = ns.x.replace('', ns.x) %}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
           "{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
           "{% endfor %}{{ ns.x }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x] %}"
           "{% endfor %}",
           "{{ 'x' * 999999999999 }}",
           "{{ range(999999999) }}",
           "{{ '%999999999d' % 1 }}",
           "{{ 2 ** 9999 }}",
           "{{ 9223372036854775807 + 1 }}",
           "{{ -9223372036854775807 - 2 }}",
           "{% for i in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
           "{{ messages | tojson(indent=99999999) }}{{ 1 // 0 }}",
       }) {
    EXPECT_TRUE(error_of(source).starts_with("chat template")) << source;
  }
}

TEST(Bounds, RecursionIsStopped) {
  EXPECT_NE(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("nest too deeply"),
            std::string::npos);
  for (const char* open : {"(", "[", "{1:", "not ", "-", "f(", "a[", "x if ", "1 + ("}) {
    std::string source = "{{ ";
    for (int i = 0; i < 50000; ++i) {
      source += open;
    }
    EXPECT_TRUE(error_of(source).starts_with("chat template")) << open;
  }
  for (const char* repeated :
       {" + 1", " | trim", ".a", "[0]", "()", " ~ 1", " and 1", " is string"}) {
    std::string source = "{{ 1";
    for (int i = 0; i < 50000; ++i) {
      source += repeated;
    }
    (void)error_of(source + " }}");  // an error or not, but no crash
  }
  std::string blocks;
  for (int i = 0; i < 20000; ++i) {
    blocks += "{% if 1 %}";
  }
  EXPECT_TRUE(error_of(blocks).starts_with("chat template"));
}

TEST(Bounds, NoValueHoldsItself) {
  EXPECT_EQ(joined(*render("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}")), "[[]]");
  EXPECT_EQ(joined(*render("{% set d = {} %}{% set _ = d.update({'d': d}) %}{{ d }}")),
            "{'d': {}}");
  EXPECT_NE(error_of("{% set n = namespace() %}{% set l = [n] %}").find("cannot be put"),
            std::string::npos);
  EXPECT_EQ(joined(*render("{% set n = namespace() %}{% set n.n = n %}{{ n }}")), "<Namespace>");
  EXPECT_TRUE(
      render("{% set n = namespace() %}{% for i in range(50000) %}{% set m = namespace(n=n.n) %}"
             "{% set n.n = m %}{% endfor %}"));
}

TEST(Fuzz, DamagedTemplatesNeverCrash) {
  const std::string good =
      "{%- macro m(a, b=1) -%}{{ a ~ b }}{%- endmacro -%}{% for x in messages if x.role != 'tool' "
      "%}"
      "{{ loop.index }}{{ x['content'][1:-1] | trim | default('d') }}{{ m(x.name, b=[1, {'k': "
      "2.5}]) }}"
      "{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{% if x is mapping and not loop.last "
      "%}"
      "{{ x | tojson(indent=2) }}{% elif 1 %}{{ '%s' % 3 }}{% else %}{% break %}{% endif %}{% "
      "endfor %}"
      "{% raw %}{{ }}{% endraw %}{# c #}{% set z | upper %}b{% endset %}{{ z.split('B') | join }}";
  ChatTemplateInput input;
  input.messages = {{"system", "s", "", ""}, {"user", "üser", "n", ""}};
  ASSERT_TRUE(render(good, input)) << render(good, input).error().message;
  constexpr std::string_view kParts[] = {"{{",
                                         "}}",
                                         "{%",
                                         "%}",
                                         "-",
                                         "'",
                                         "\"",
                                         "(",
                                         ")",
                                         "[",
                                         "]",
                                         "|",
                                         ".",
                                         "~",
                                         " if ",
                                         " for ",
                                         " in ",
                                         "not ",
                                         "%}{% endif %}",
                                         "{% endfor %}",
                                         "\xF0\x9F",
                                         "\\u12",
                                         "1e9"};
  std::mt19937_64 random(17);
  for (int round = 0; round < 6000; ++round) {
    std::string source = good;
    for (std::uint64_t i = random() % 5; i < 5; ++i) {
      const std::size_t at = random() % source.size();
      switch (random() % 3) {
        case 0:
          source.erase(at, 1 + random() % 6);
          break;
        case 1:
          source.insert(at, kParts[random() % std::size(kParts)]);
          break;
        default:
          source[at] = static_cast<char>(random());
          break;
      }
    }
    (void)render(source, input);
  }
}

}  // namespace
}  // namespace baton::engine
