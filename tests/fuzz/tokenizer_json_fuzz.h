// Text of a tokenizer.json: a tokenizer that works and travels, or an error that names the file.
#pragma once

#include "engine/tokenizer/tokenizer_json.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {

struct TokenizerJsonFuzz {
  static constexpr std::string_view kName = "tokenizer_json";

  static void run(std::span<const std::uint8_t> bytes) {
    engine::HfTokenizerFiles files;
    files.folder = "dir";
    files.tokenizer = as_text(bytes);
    files.vocab_size = 1000;
    auto spec = engine::read_tokenizer_json(files);
    if (!spec) {
      fuzz_check(spec.error().code == ErrorCode::InvalidModel);
      fuzz_check(spec.error().message.find("dir/tokenizer.json") != std::string::npos);
      return;
    }
    const auto parsed = engine::TokenizerSpec::parse(spec->serialize());
    fuzz_check(parsed.has_value());
    if (const auto tokenizer = engine::Tokenizer::create(std::move(*spec))) {
      (void)(*tokenizer)->encode("a  b<s>\n ab<|end|> ", true, true);
    }
  }

  static std::vector<std::string> seeds() {
    std::string vocab = R"("<unk>":0,"<s>":1)";
    constexpr const char* kHex = "0123456789ABCDEF";
    for (int b = 0; b < 256; ++b) {
      vocab += std::string(",\"<0x") + kHex[b / 16] + kHex[b % 16] + ">\":" + std::to_string(2 + b);
    }
    return {
        R"({"added_tokens":[{"id":5,"content":"<|end|>","special":true,"rstrip":true}],)"
        R"("normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
        R"({"type":"Digits","individual_digits":true},{"type":"ByteLevel",)"
        R"("add_prefix_space":false}]},"post_processor":{"type":"TemplateProcessing","single":[)"
        R"({"SpecialToken":{"id":"<|end|>"}},{"Sequence":{"id":"A"}}]},"model":{"type":"BPE",)"
        R"("vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"c":4},"merges":["a b",["Ġ","a"]]}})",
        R"({"added_tokens":[{"id":1,"content":"<s>","special":true,"lstrip":true}],)"
        R"("pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first",)"
        R"("split":false},"model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>",)"
        R"("vocab":{)" +
            vocab + R"(,"▁":258,"a":259,"▁a":260},"merges":["▁ a"]}})"};
  }
};

}  // namespace baton::fuzz
