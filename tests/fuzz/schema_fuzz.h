// Any bytes as a JSON schema, a regular expression, rules or a structural tag, which the first byte
// chooses: an error that says why, or a grammar that can be walked.
#pragma once

#include "engine/grammar/grammar.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/byte_tokenizer.h"

namespace baton::fuzz {

struct SchemaFuzz {
  static constexpr std::string_view kName = "schema";

  static void run(std::span<const std::uint8_t> bytes) {
    if (bytes.empty()) {
      return;
    }
    constexpr Grammar::Kind kKinds[] = {
        Grammar::Kind::Regex, Grammar::Kind::Ebnf, Grammar::Kind::StructuralTag};
    Grammar grammar{.kind = Grammar::Kind::JsonSchema, .text = std::string(as_text(bytes))};
    if (bytes[0] >= '0' && bytes[0] < '3') {
      grammar = {.kind = kKinds[bytes[0] - '0'], .text = std::string(as_text(bytes.subspan(1)))};
    }
    const Status checked = engine::check_grammar(grammar);
    if (!checked) {
      fuzz_check(checked.error().code == ErrorCode::InvalidArgument);
      fuzz_check(!checked.error().message.empty());
      return;
    }
    static const std::string tokenizer = testing::byte_tokenizer_spec().serialize();
    static engine::GrammarCompiler compiler(
        tokenizer, testing::kByteVocab, {.cache_bytes = std::size_t{1} << 20});
    const auto compiled = compiler.compile(grammar);
    fuzz_check(compiled.has_value() || !compiled.error().message.empty());
    if (compiled) {
      walk(*compiled);
    }
  }

  static std::vector<std::string> seeds() {
    return {R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[a-z]{1,3}$"},)"
            R"("b":{"type":"array","items":{"$ref":"#/$defs/n"},"minItems":1,"maxItems":3},)"
            R"("c":{"enum":["x",1,null]}},"required":["a"],"$defs":{"n":{"type":"integer",)"
            R"("minimum":-5,"exclusiveMaximum":300}}})",
            R"({"anyOf":[{"type":"null"},{"type":"object","additionalProperties":{"$ref":"#"}}]})",
            R"({"oneOf":[{"type":"number","minimum":0.5,"maximum":2},{"type":"string","format":)"
            R"("date-time","title":"t"}]})",
            R"({"type":["array","boolean"],"prefixItems":[{"const":"a"},{}],"items":false})",
            R"({"type":"object","patternProperties":{"^x":{"type":"string","maxLength":4}}})",
            "0^(yes|no)[0-9]{1,4}(?:a|b\\d)*$",
            "1root ::= item (\",\" item){0,3}\nitem ::= [a-c]+ | \"x\\n\" root",
            R"(2{"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f"],)"
            R"("tags":[{"type":"tag","begin":"<f>","content":{"type":"json_schema","json_schema":)"
            R"({"type":"object","properties":{"q":{"type":"string"}}}},"end":"</f>"}]}})"};
  }

 private:
  // What is allowed is accepted, and taking it back gives the same mask again.
  static void walk(const std::shared_ptr<const engine::CompiledGrammar>& grammar) {
    engine::GrammarMatcher matcher(grammar);
    std::vector<std::uint32_t> words(matcher.num_words());
    std::uint32_t turn = 7;
    for (int step = 0; step < 12 && !matcher.is_terminated(); ++step) {
      std::vector<TokenId> allowed;
      const bool is_masked = matcher.fill(words);
      for (TokenId token = 0; token < static_cast<TokenId>(testing::kByteVocab); ++token) {
        const auto bit = static_cast<std::uint32_t>(token);
        if (!is_masked || (words[bit / 32] >> (bit % 32) & 1U) != 0) {
          allowed.push_back(token);
        }
      }
      fuzz_check(!allowed.empty());
      if (matcher.is_stuck()) {
        return;
      }
      turn = turn * 1'664'525 + 1'013'904'223;
      const TokenId token = allowed[turn % allowed.size()];
      fuzz_check(!is_masked || matcher.accept(token));
      if (is_masked) {
        matcher.rollback(1);
        const std::vector<std::uint32_t> before = words;
        fuzz_check(matcher.fill(words) && words == before);
        fuzz_check(matcher.accept(token));
      } else if (!matcher.accept(token)) {
        return;
      }
    }
  }
};

}  // namespace baton::fuzz
