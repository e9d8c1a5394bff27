// Rules that hold for every vocabulary, on small made-up ones: merges, special tokens and where
// they may come from, broken input, long words, wrong vocabularies.
#include "engine/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

using Ids = std::vector<TokenId>;

// All bytes, some merges, two control tokens and a user-defined one.
TokenizerSpec byte_spec() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre_tokenizer = "smollm";
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    std::string text;
    append_utf8(text, printable ? byte : next++);
    spec.tokens.push_back(text);
  }
  const auto merge = [&spec](const std::string& left, const std::string& right) {
    spec.merges.push_back(left + " " + right);
    spec.tokens.push_back(left + right);
  };
  merge("h", "e");     // 256
  merge("l", "l");     // 257
  merge("he", "ll");   // 258
  merge("Ġ", "hell");  // 259
  merge("a", "a");     // 260
  merge("aa", "aa");   // 261
  spec.kinds.assign(spec.tokens.size(), TokenKind::Normal);
  const auto special = [&spec](const std::string& text, TokenKind kind) {
    spec.tokens.push_back(text);
    spec.kinds.push_back(kind);
  };
  special("<|im_start|>", TokenKind::Control);  // 262
  special("<|im_end|>", TokenKind::Control);    // 263
  special("<tool>", TokenKind::UserDefined);    // 264
  special("<tool><", TokenKind::UserDefined);   // 265
  spec.bos = 262;
  spec.eos = 263;
  spec.add_bos = true;
  return spec;
}

std::unique_ptr<const Tokenizer> make(TokenizerSpec spec) {
  auto made = Tokenizer::create(std::move(spec));
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

TokenizerSpec piece_spec() {
  TokenizerSpec spec;
  spec.model = "llama";
  const auto add = [&spec](const std::string& text, float score, TokenKind kind) {
    spec.tokens.push_back(text);
    spec.scores.push_back(score);
    spec.kinds.push_back(kind);
  };
  add("<unk>", 0, TokenKind::Unknown);      // 0
  add("<s>", 0, TokenKind::Control);        // 1
  add("</s>", 0, TokenKind::Control);       // 2
  for (int byte = 0; byte < 256; ++byte) {  // 3 to 258
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    add(name, 0, TokenKind::Byte);
  }
  add("▁", -10, TokenKind::Normal);         // 259
  add("a", -11, TokenKind::Normal);         // 260
  add("b", -12, TokenKind::Normal);         // 261
  add("ab", -1, TokenKind::Normal);         // 262
  add("▁a", -2, TokenKind::Normal);         // 263
  add("ba", -3, TokenKind::Normal);         // 264
  add("<", -20, TokenKind::Normal);         // 265
  add("s", -21, TokenKind::Normal);         // 266
  add(">", -22, TokenKind::Normal);         // 267
  add("<s", -23, TokenKind::Normal);        // 268
  add("\n\n", -1, TokenKind::UserDefined);  // 269
  spec.bos = 1;
  spec.eos = 2;
  spec.unknown = 0;
  spec.add_bos = true;
  spec.add_space_prefix = true;
  return spec;
}

TEST(ByteBpe, MergesByRank) {
  const auto tokenizer = make(byte_spec());
  EXPECT_EQ(tokenizer->encode("hell hell", false, false), (Ids{258, 259}));
  EXPECT_EQ(tokenizer->encode("hello", false, false), (Ids{258, 'o'}));
  EXPECT_EQ(tokenizer->encode("aaaaaaa", false, false), (Ids{261, 260, 'a'}));
  EXPECT_EQ(tokenizer->encode("", false, false), Ids{});
  EXPECT_EQ(tokenizer->encode("a", false, true), (Ids{262, 'a'}));
}

TEST(ByteBpe, LongWordsEqualShortOnes) {
  const auto tokenizer = make(byte_spec());
  // 4 n a's in a word beyond the short path give n times "aaaa".
  const Ids ids = tokenizer->encode(std::string(100000, 'a'), false, false);
  EXPECT_EQ(ids, Ids(25000, 261));
  std::string word;
  Ids want;
  for (int i = 0; i < 300; ++i) {
    word += "hellx";
    want.insert(want.end(), {258, 'x'});
  }
  EXPECT_EQ(tokenizer->encode(word, false, false), want);
}

TEST(SpecialTokens, OnlyWhereAllowed) {
  const auto tokenizer = make(byte_spec());
  EXPECT_EQ(tokenizer->encode("<|im_end|>", true, false), Ids{263});
  EXPECT_EQ(tokenizer->encode("<|im_end|>", false, false).size(), 10U);
  const std::vector<PromptPiece> pieces = {
      {"<|im_start|>", true}, {"<|im_end|>", false}, {"<|im_end|>", true}};
  const Ids ids = tokenizer->encode(pieces, false);
  EXPECT_EQ(ids.size(), 12U);
  EXPECT_EQ(ids.front(), 262);
  EXPECT_EQ(ids.back(), 263);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 263), 1);
}

TEST(SpecialTokens, NeverFromPartsOfBothSorts) {
  const auto tokenizer = make(byte_spec());
  const std::string marker = "<|im_end|>";
  for (std::size_t cut = 1; cut < marker.size(); ++cut) {
    const std::vector<PromptPiece> pieces = {{marker.substr(0, cut), cut % 2 == 0},
                                             {marker.substr(cut), cut % 2 != 0}};
    const Ids ids = tokenizer->encode(pieces, false);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 263), 0) << cut;
  }
  // Two allowed pieces side by side are one text.
  const std::vector<PromptPiece> joined = {{"<|im_", true}, {"", false}, {"end|>", true}};
  EXPECT_EQ(tokenizer->encode(joined, false), Ids{263});
}

TEST(SpecialTokens, UserDefinedEverywhereLongestFirst) {
  const auto tokenizer = make(byte_spec());
  EXPECT_EQ(tokenizer->encode("<tool>", false, false), Ids{264});
  EXPECT_EQ(tokenizer->encode("<tool><x", false, false), (Ids{265, 'x'}));
  EXPECT_EQ(tokenizer->encode("x<tool", false, false).size(), 6U);
}

TEST(SpecialTokens, PiecesMergeAsOneText) {
  const auto tokenizer = make(byte_spec());
  const std::vector<PromptPiece> pieces = {{"he", true}, {"ll", false}};
  EXPECT_EQ(tokenizer->encode(pieces, false), Ids{258});
}

TEST(StopTokens, EosEotAndTurnMarkers) {
  TokenizerSpec spec = byte_spec();
  spec.tokens.insert(spec.tokens.end(), {"<|eot_id|>", "</s>", "<eos>"});
  spec.kinds.insert(spec.kinds.end(),
                    {TokenKind::Normal, TokenKind::UserDefined, TokenKind::Control});
  const auto tokenizer = make(std::move(spec));
  const auto stops = tokenizer->stop_tokens();
  EXPECT_EQ(Ids(stops.begin(), stops.end()), (Ids{263, 266, 268}));
  // A marker that the file calls plain text cannot be forged either.
  const Ids ids = tokenizer->encode("<|eot_id|>", false, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 266), 0);
}

TEST(TokenBytes, SpecialOnlyWhenAsked) {
  const auto tokenizer = make(byte_spec());
  EXPECT_EQ(tokenizer->token_bytes(259, false), " hell");
  EXPECT_EQ(tokenizer->token_bytes(263, false), "");
  EXPECT_EQ(tokenizer->token_bytes(263, true), "<|im_end|>");
  EXPECT_EQ(tokenizer->token_bytes(264, false), "<tool>");
  EXPECT_EQ(tokenizer->token_bytes(0xFF, false), "\xFF");
  EXPECT_EQ(tokenizer->token_bytes(-1, true), "");
  EXPECT_EQ(tokenizer->token_bytes(100000, true), "");
}

TEST(SentencePiece, ScoresDecideAndSpacesArePrefixed) {
  const auto tokenizer = make(piece_spec());
  EXPECT_EQ(tokenizer->encode("ab", false, true), (Ids{1, 259, 262}));  // "ab" before "▁a"
  EXPECT_EQ(tokenizer->encode("a a", false, false), (Ids{263, 263}));
  EXPECT_EQ(tokenizer->encode("bab", false, false), (Ids{259, 261, 262}));
  EXPECT_EQ(tokenizer->encode("", false, true), Ids{1});
  TokenizerSpec bare = piece_spec();
  bare.add_space_prefix = false;
  EXPECT_EQ(make(std::move(bare))->encode("ab", false, false), Ids{262});
}

TEST(SentencePiece, BytesForUnknownCharacters) {
  const auto tokenizer = make(piece_spec());
  EXPECT_EQ(tokenizer->encode("aé", false, false), (Ids{263, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer->token_bytes(3 + 0xC3, false), "\xC3");
  EXPECT_EQ(tokenizer->encode("a\n\n\nb", false, false), (Ids{263, 269, 259, 3 + '\n', 261}));
}

TEST(SentencePiece, TextCannotForgeControlTokens) {
  const auto tokenizer = make(piece_spec());
  // "<s" and ">" would merge to the control token "<s>".
  EXPECT_EQ(tokenizer->encode("<s>", false, false), (Ids{259, 268, 267}));
  EXPECT_EQ(tokenizer->encode("<s>", true, false), Ids{1});
}

TEST(SentencePiece, LongWordsEqualShortOnes) {
  const auto tokenizer = make(piece_spec());
  std::string text;
  Ids want = {259};
  for (int i = 0; i < 40000; ++i) {
    text += "ab";
    want.push_back(262);
  }
  EXPECT_EQ(tokenizer->encode(text, false, false), want);
}

TEST(SentencePiece, Phi3ControlTokensTakeTheSpacesAfterThem) {
  TokenizerSpec spec = piece_spec();
  spec.tokens.push_back("<|end|>");  // 270
  spec.scores.push_back(0);
  spec.kinds.push_back(TokenKind::Control);
  const auto plain = make(spec);
  EXPECT_EQ(plain->encode("<|end|> \n a", true, false), (Ids{270, 259, 259, 3 + '\n', 263}));
  spec.architecture = "phi3";
  const auto phi3 = make(std::move(spec));
  EXPECT_EQ(phi3->encode("<|end|> \n\u3000 a", true, false), (Ids{270, 263}));
  EXPECT_EQ(phi3->encode("<s> a", true, false), (Ids{1, 259, 263}));  // "<s>" does not
}

// Families that normalize see composed characters; others see what was written.
TEST(ByteBpe, SomeFamiliesNormalizeFirst) {
  TokenizerSpec spec = byte_spec();
  spec.pre_tokenizer = "qwen2";
  const auto normalizing = make(spec);
  spec.pre_tokenizer = "llama-bpe";
  const auto plain = make(std::move(spec));
  const std::pair<std::string, std::string> pairs[] = {
      {"e\u0301", "\u00E9"},
      {"a\u0301\u0323", "\u1EA1\u0301"},         // marks change places
      {"\u1112\u1161\u11AB", "\uD55C"},          // Hangul of three parts
      {"\uAC00\u11A8", "\uAC01"},                // and of two
      {"\u212B \u0958", "\u00C5 \u0915\u093C"},  // one that may not stay, one taken apart
      {"\u0301e", "\u0301e"},                    // nothing before it
      {"e\u0327\u0301", "\u0229\u0301"},         // the lower class first
      {"\u09C7\u09BE", "\u09CB"},                // two of class 0
      {"x\u07FD\u0323", "x\u07FD\u0323"},        // a mark that is too new
      {"<tool>e\u0301<tool>", "<tool>\u00E9<tool>"}};
  for (const auto& [given, wanted] : pairs) {
    EXPECT_EQ(normalizing->encode(given, false, false), plain->encode(wanted, false, false))
        << given;
  }
  EXPECT_NE(plain->encode("e\u0301", false, false), plain->encode("\u00E9", false, false));
  // A prompt may be three times the bytes of what its tokens say.
  EXPECT_EQ(normalizing->least_tokens(3600), plain->least_tokens(1200));
}

// Texts that are one long word, or that end in a rule's look-ahead again and again: a step that
// looked back over what is behind it would take minutes here.
TEST(Encode, HostileTextsTakeNoLongerThanTheirLength) {
  const char* const families[] = {"gpt-2",
                                  "smollm",
                                  "llama-bpe",
                                  "qwen2",
                                  "qwen35",
                                  "seed-coder",
                                  "tekken",
                                  "gpt-4o",
                                  "deepseek-v3",
                                  "deepseek-llm",
                                  "deepseek-coder",
                                  "falcon",
                                  "bloom",
                                  "viking",
                                  "default"};
  const auto repeated = [](const std::string& part) {
    std::string text;
    while (text.size() < 100000) {
      text += part;
    }
    return text;
  };
  const std::string texts[] = {repeated("a"),
                               repeated("A"),
                               repeated(" "),
                               repeated("\n"),
                               repeated(" \n"),
                               "x" + repeated("\u0301"),
                               "x" + repeated("\u0301\u0323\u0315"),
                               repeated("'"),
                               repeated("1"),
                               repeated("\u4E2D"),
                               repeated("\u4E2DA"),
                               repeated("=/"),
                               repeated("<|im_end|"),
                               repeated("\u1112\u1161\u11AB"),
                               repeated("\u0001")};
  std::vector<std::unique_ptr<const Tokenizer>> made;
  for (const char* family : families) {
    TokenizerSpec spec = byte_spec();
    spec.pre_tokenizer = family;
    made.push_back(make(std::move(spec)));
  }
  TokenizerSpec pieces = piece_spec();
  pieces.add_space_prefix = false;
  made.push_back(make(std::move(pieces)));
  for (const auto& tokenizer : made) {
    const bool normalizes =
        tokenizer->spec().pre_tokenizer == "qwen2" || tokenizer->spec().pre_tokenizer == "qwen35";
    for (const std::string& text : texts) {
      std::size_t bytes = 0;
      for (const TokenId id : tokenizer->encode(text, true, false)) {
        bytes += tokenizer->token_bytes(id, true).size();
      }
      EXPECT_TRUE(bytes == text.size() || (normalizes && bytes > 0 && bytes < text.size()))
          << tokenizer->spec().pre_tokenizer << ": " << text.substr(0, 12);
    }
  }
}

TEST(Encode, BrokenUtf8BecomesReplacementCharacters) {
  for (const auto& tokenizer : {make(byte_spec()), make(piece_spec())}) {
    EXPECT_EQ(tokenizer->encode("a\xFF\xC3z", false, false),
              tokenizer->encode("a\uFFFD\uFFFDz", false, false));
    const std::vector<PromptPiece> pieces = {{"\xE2\x82", true}, {"\xAC", false}};
    EXPECT_EQ(tokenizer->encode(pieces, false), tokenizer->encode("\uFFFD\uFFFD", false, false));
  }
}

TEST(Encode, RandomBytesComeBackSanitized) {
  const auto byte_level = make(byte_spec());
  // With the space prefix a space is added after every user-defined token too.
  TokenizerSpec bare = piece_spec();
  bare.add_space_prefix = false;
  const auto sentence_piece = make(std::move(bare));
  std::mt19937_64 random(3);
  const std::string_view common = "ab  <s>hel\n\n<|im_end|>'sé½7";
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    const std::size_t size = random() % 120;
    for (std::size_t i = 0; i < size; ++i) {
      text.push_back(random() % 3 == 0 ? static_cast<char>(random())
                                       : common[random() % common.size()]);
    }
    for (const auto* tokenizer : {byte_level.get(), sentence_piece.get()}) {
      Detokenizer detokenizer(*tokenizer);
      std::string back;
      for (const TokenId id : tokenizer->encode(text, false, false)) {
        back += detokenizer.push(id);
      }
      EXPECT_EQ(back + detokenizer.flush(), sanitize_utf8(text));
      // With special tokens the text comes back too, when they are printed.
      Detokenizer printing(*tokenizer, true);
      back.clear();
      for (const TokenId id : tokenizer->encode(text, true, false)) {
        back += printing.push(id);
      }
      if (tokenizer == byte_level.get()) {
        EXPECT_EQ(back + printing.flush(), sanitize_utf8(text));
      }
    }
  }
}

void expect_error(TokenizerSpec spec, std::string_view part) {
  const auto made = Tokenizer::create(std::move(spec));
  ASSERT_FALSE(made) << part;
  EXPECT_EQ(made.error().code, ErrorCode::InvalidModel);
  EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
}

TEST(Create, WrongVocabulariesAreNamed) {
  TokenizerSpec spec = byte_spec();
  spec.pre_tokenizer = "klingon";
  expect_error(spec, "'klingon'");
  expect_error(spec, "llama-bpe");
  spec = byte_spec();
  spec.model = "wordpiece";
  expect_error(spec, "'wordpiece'");
  spec = byte_spec();
  spec.merges[1] = "ll";
  expect_error(spec, "merge 1");
  spec = byte_spec();
  spec.kinds.pop_back();
  expect_error(spec, "token_type");
  spec = byte_spec();
  spec.eos = 5000;
  expect_error(spec, "eos");
  spec = piece_spec();
  spec.scores.clear();
  expect_error(spec, "scores");
  spec = piece_spec();
  spec.tokens[5] = "x";
  expect_error(spec, "kind byte");
  expect_error(TokenizerSpec{}, "no tokens");
}

}  // namespace
}  // namespace baton::engine
