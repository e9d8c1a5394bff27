// Two small vocabularies of both kinds.
#pragma once

#include <cstdio>
#include <string>

#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace baton::fuzz {

inline engine::TokenizerSpec byte_level_vocabulary() {
  engine::TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre_tokenizer = "smollm";
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    std::string text;
    engine::append_utf8(text, printable ? byte : next++);
    spec.tokens.push_back(text);
  }
  for (const auto& [left, right] : {std::pair("h", "e"),
                                    std::pair("l", "l"),
                                    std::pair("he", "ll"),
                                    std::pair("Ġ", "hell"),
                                    std::pair("a", "a")}) {
    spec.merges.push_back(std::string(left) + " " + right);
    spec.tokens.push_back(std::string(left) + right);
  }
  spec.kinds.assign(spec.tokens.size(), engine::TokenKind::Normal);
  for (const auto& [text, kind] : {std::pair("<s>", engine::TokenKind::Control),
                                   std::pair("<|im_end|>", engine::TokenKind::Control),
                                   std::pair("<tool>", engine::TokenKind::UserDefined)}) {
    spec.tokens.emplace_back(text);
    spec.kinds.push_back(kind);
  }
  spec.bos = 261;
  spec.eos = 262;
  spec.add_bos = true;
  return spec;
}

inline engine::TokenizerSpec sentencepiece_vocabulary() {
  engine::TokenizerSpec spec;
  spec.model = "llama";
  const auto add = [&spec](const std::string& text, float score, engine::TokenKind kind) {
    spec.tokens.push_back(text);
    spec.scores.push_back(score);
    spec.kinds.push_back(kind);
  };
  add("<unk>", 0, engine::TokenKind::Unknown);
  add("<s>", 0, engine::TokenKind::Control);
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    add(name, 0, engine::TokenKind::Byte);
  }
  float score = -1;
  for (const char* text : {"▁",
                           "a",
                           "b",
                           "ab",
                           "▁a",
                           "ba",
                           "<",
                           "s",
                           ">",
                           "<s",
                           "h",
                           "e",
                           "l",
                           "he",
                           "ll",
                           "hell",
                           "▁hell",
                           "aa",
                           "a▁"}) {
    add(text, score--, engine::TokenKind::Normal);
  }
  add("\n\n", 0, engine::TokenKind::UserDefined);
  spec.bos = 1;
  spec.unknown = 0;
  spec.add_bos = true;
  spec.add_space_prefix = false;
  return spec;
}

}  // namespace baton::fuzz
