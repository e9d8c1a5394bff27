// Bytes of a TokenizerSpec, as they come over the wire: parsed, serialized again and built.
#pragma once

#include "engine/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/sample_vocabulary.h"

namespace baton::fuzz {

struct TokenizerSpecFuzz {
  static constexpr std::string_view kName = "tokenizer_spec";

  static void run(std::span<const std::uint8_t> bytes) {
    auto spec = engine::TokenizerSpec::parse(as_text(bytes));
    if (!spec) {
      fuzz_check(!spec.error().message.empty());
      return;
    }
    const auto again = engine::TokenizerSpec::parse(spec->serialize());
    fuzz_check(again && again->hash() == spec->hash());
    const auto tokenizer = engine::Tokenizer::create(std::move(*spec));
    if (!tokenizer) {
      return;
    }
    const auto count = static_cast<TokenId>((*tokenizer)->vocab_size());
    for (const std::string_view text : {"hello  hell\n½ a aa", "<s>\xFF", "▁x 😀"}) {
      for (const bool special : {false, true}) {
        for (const TokenId id : (*tokenizer)->encode(text, special, true)) {
          fuzz_check(id >= 0 && id < count);
          (void)(*tokenizer)->token_bytes(id, special);
        }
      }
    }
  }

  static std::vector<std::string> seeds() {
    return {byte_level_vocabulary().serialize(), sentencepiece_vocabulary().serialize()};
  }
};

}  // namespace baton::fuzz
