// Any bytes as text: tokens of both kinds of tokenizers bring the text back, with broken UTF-8
// replaced, and no control token comes out of text that may not hold one.
#pragma once

#include <algorithm>

#include "engine/tokenizer/nfc.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sample_vocabulary.h"

namespace baton::fuzz {

struct TokenizerTextFuzz {
  static constexpr std::string_view kName = "tokenizer_text";

  static void run(std::span<const std::uint8_t> bytes) {
    static const auto kTokenizers = [] {
      std::vector<std::unique_ptr<const engine::Tokenizer>> made;
      for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2", "qwen35", "default"}) {
        auto spec = byte_level_vocabulary();
        spec.pre_tokenizer = pre;
        made.push_back(std::move(*engine::Tokenizer::create(std::move(spec))));
      }
      made.push_back(std::move(*engine::Tokenizer::create(sentencepiece_vocabulary())));
      return made;
    }();
    static const engine::Nfc kNfc;
    const std::string_view text = as_text(bytes);
    const std::string wanted = engine::sanitize_utf8(text);
    for (const auto& tokenizer : kTokenizers) {
      // "▁" and a space are one to SentencePiece; some families compose characters.
      const bool exact = tokenizer->spec().model == "gpt2" ? kNfc.is_normalized(wanted)
                                                           : text.find("▁") == text.npos;
      check(*tokenizer, tokenizer->encode(text, false, false), wanted, exact, false);
      check(*tokenizer, tokenizer->encode(text, true, false), wanted, exact, true);
      // The same text in two pieces, of which one may hold special tokens.
      const std::size_t cut = wanted.size() / 2;
      if (engine::is_valid_utf8(std::string_view(wanted).substr(0, cut))) {
        const std::vector<engine::PromptPiece> pieces = {{wanted.substr(0, cut), false},
                                                         {wanted.substr(cut), true}};
        check(*tokenizer, tokenizer->encode(pieces, false), wanted, exact, true);
      }
    }
  }

  static std::vector<std::string> seeds() {
    return {"hello hell  \n\n it's 123 ½ <s> <|im_end|><tool>",
            "\xF0\x9F\x98\x80\xFF\xC3(▁a ▁▁b",
            "a\r\nb\t\tc\u3000\u00a0日本語 1½x",
            std::string(300, 'a') + std::string(60, ' ') + "ab"};
  }

 private:
  static void check(const engine::Tokenizer& tokenizer,
                    const std::vector<TokenId>& ids,
                    const std::string& wanted,
                    bool exact,
                    bool special) {
    engine::Detokenizer detokenizer(tokenizer, special);
    std::string back;
    for (const TokenId id : ids) {
      fuzz_check(special || tokenizer.spec().kinds[static_cast<std::size_t>(id)] !=
                                engine::TokenKind::Control);
      back += detokenizer.push(id);
    }
    back += detokenizer.flush();
    fuzz_check(!exact || back == wanted);
  }
};

}  // namespace baton::fuzz
