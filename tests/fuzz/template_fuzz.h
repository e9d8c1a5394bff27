// Chat template source: parsing and rendering end with text or an error, and text of the request
// never shows up in a piece that may hold special tokens.
#pragma once

#include "engine/chat_template/chat_template.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {

struct TemplateFuzz {
  static constexpr std::string_view kName = "template";

  static void run(std::span<const std::uint8_t> bytes) {
    if (bytes.size() > 8192) {
      return;  // the work limit, not the size, is what is of interest
    }
    const auto made = engine::ChatTemplate::create(std::string(as_text(bytes)), "llama");
    if (!made) {
      fuzz_check(!made.error().message.empty());
      return;
    }
    engine::ChatTemplateInput input;
    input.messages = {
        {"system", "Be kind.", "", ""},
        {"user", "\u2603\u2603 snow", "n", R"({"extra": [1, {"k": "\u2603"}]})"},
        {"assistant", "", "", R"({"tool_calls": [{"function": {"name": "\u2603"}}]})"}};
    input.tools_json = R"([{"function": {"name": "f", "parameters": {"p": "\u2603"}}}])";
    input.kwargs_json = R"({"flag": true, "words": ["\u2603", "b"]})";
    input.bos_token = "<s>";
    input.eos_token = "</s>";
    const auto pieces = (*made)->render(input);
    if (!pieces) {
      fuzz_check(!pieces.error().message.empty());
      return;
    }
    if (as_text(bytes).find('\\') != std::string_view::npos ||
        as_text(bytes).find("\u2603") != std::string_view::npos) {
      return;  // the template may write the sign itself
    }
    for (const engine::PromptPiece& piece : *pieces) {
      fuzz_check(!piece.special_allowed || piece.text.find("\u2603") == std::string::npos);
    }
  }

  static std::vector<std::string> seeds() {
    return {
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'x' }}{% endif %}",
        "{%- macro m(a, b=1) -%}{{ a ~ b }}{%- endmacro -%}{% for k, v in messages[1].items() %}"
        "{{ m(k, b=v) }}{{ loop.index }}{{ loop.previtem }}{% if loop.last %}{% break %}{% endif %}"
        "{% else %}e{% endfor %}",
        "{% set ns = namespace(n=0, l=[]) %}{% set ns.n = ns.n + 1 %}{% set ns.l = ns.l + [ns.n] %}"
        "{{ ns.l[-1:] }}{{ tools | tojson(indent=2) }}{{ words | map('upper') | join(',') }}",
        "{% raw %}{{ x }}{% endraw %}{# c #}{% set z | trim %} a {% endset %}{{ z | default('d') }}"
        "{% filter indent(2) %}a\nb{% endfilter %}{% generation %}g{% endgeneration %}",
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}"
        "{{ 'a-b'.split('-', 1) }}{{ '%s %d' % ('x', 3) }}{{ 7 // 2 ** 3 % 4 - -1 }}{{ 'abc'[::-1] "
        "}}",
        "{% macro c() %}{{ caller(1) }}{% endmacro %}{% call(x) c() %}{{ x }}{% endcall %}"
        "{% with a = 1 %}{{ a is defined and a is not none }}{% endwith %}{{ x if flag else 'n' }}",
        "{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}{{ l.pop() }}{{ dict(a=1).get('a') }}"
        "{{ {'b': 1, 'a': [2.5, none, true]} | dictsort | reverse | first }}{{ range(3) | sum }}",
    };
  }
};

}  // namespace baton::fuzz
