// A tokenizer spec of 256 byte tokens and three control tokens, with a small chat template, for
// tests: token id = byte, so that a test can write the answer it wants as text.
//
// Thread: plain functions. Failure: none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::testing {

inline constexpr TokenId kByteStart = 256;  // <|im_start|>
inline constexpr TokenId kByteEnd = 257;    // <|im_end|>, ends a generation
inline constexpr TokenId kByteEos = 258;    // <|endoftext|>
inline constexpr std::uint32_t kByteVocab = 259;

engine::TokenizerSpec byte_tokenizer_spec();
std::vector<TokenId> byte_tokens(std::string_view text);

}  // namespace baton::testing
