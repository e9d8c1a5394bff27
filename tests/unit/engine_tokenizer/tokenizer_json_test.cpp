// tokenizer.json and its neighbours as a TokenizerSpec: what is read, and what is refused by key.
#include "engine/tokenizer/tokenizer_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/json/json_doc.h"

namespace baton::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kByteLevel =
    R"({"added_tokens":[{"id":6,"content":"<|end|>","special":true,"rstrip":true},)"
    R"({"id":7,"content":"<tool>","special":false,"lstrip":true}],)"
    R"("normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
    R"("post_processor":null,"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3,"c":4,"Ċ":5},)"
    R"("merges":["a b"]}})";

// A SentencePiece-like vocabulary: bytes, letters, "▁a" and "▁ab".
std::string spm(const std::string& steps,
                const std::string& merges,
                const std::string& added = "") {
  std::string vocab = R"("<unk>":0,"<s>":1,"</s>":2)";
  for (int b = 0; b < 256; ++b) {
    vocab += fmt::format(",\"<0x{:02X}>\":{}", b, 3 + b);
  }
  vocab += R"(,"▁":259,"a":260,"b":261,"▁a":262,"ab":263,"▁ab":264)";
  return R"({"added_tokens":[{"id":0,"content":"<unk>","special":true},)"
         R"({"id":1,"content":"<s>","special":true},{"id":2,"content":"</s>","special":true})" +
         added + "]," + steps +
         R"("model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","vocab":{)" + vocab +
         "},\"merges\":[" + merges + "]}}";
}
const std::string kMerges = R"("a b","▁ a","▁ ab","▁a b")";
const std::string kLlama2 =
    R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
    R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null,)"
    R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
    R"({"Sequence":{"id":"A"}}]},)";
const std::string kFirst =
    R"("normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"▁",)"
    R"("prepend_scheme":"first","split":false},)";

HfTokenizerFiles files(std::string tokenizer) {
  HfTokenizerFiles out;
  out.folder = "dir";
  out.tokenizer = std::move(tokenizer);
  return out;
}

std::unique_ptr<const Tokenizer> made(const HfTokenizerFiles& from) {
  auto spec = read_tokenizer_json(from);
  EXPECT_TRUE(spec) << spec.error().message;
  if (!spec) {
    return nullptr;
  }
  // As a gateway gets it.
  auto parsed = TokenizerSpec::parse(spec->serialize());
  EXPECT_TRUE(parsed) << parsed.error().message;
  auto tokenizer = Tokenizer::create(std::move(*parsed));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

TEST(TokenizerJson, AddedTokensTakeWhiteSpaceAlong) {
  const auto tokenizer = made(files(std::string(kByteLevel)));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->encode("ab<|end|> \n\u3000 a b", true, false), ElementsAre(2, 6, 0, 3, 1));
  EXPECT_THAT(tokenizer->encode("ab \n<tool> a", true, false), ElementsAre(2, 7, 3, 0));
  EXPECT_THAT(tokenizer->encode("<tool>", false, false), ElementsAre(7)) << "found everywhere";
  EXPECT_EQ(tokenizer->encode("<|end|>", false, false).size() > 0 &&
                tokenizer->encode("c<|end|>", false, false)[0] == 6,
            false)
      << "text cannot forge a special token";
}

TEST(TokenizerJson, SentencePieceMergesBecomeScores) {
  const auto tokenizer = made(files(spm(kLlama2, kMerges)));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_TRUE(tokenizer->spec().add_bos);
  EXPECT_EQ(tokenizer->spec().bos, 1);
  EXPECT_EQ(tokenizer->spec().unknown, 0);
  EXPECT_THAT(tokenizer->encode("ab a", true, true), ElementsAre(1, 264, 262));
  EXPECT_THAT(tokenizer->encode("a</s>a", true, false), ElementsAre(262, 2, 262))
      << "a prefix each";
  EXPECT_THAT(tokenizer->encode("\n", true, false), ElementsAre(259, 3 + 10));
}

// As in Llama 2's file, where the merges of all runs of spaces have one score.
TEST(TokenizerJson, MergesOfRunsOfSpacesMayLieAmongEachOther) {
  std::string text = spm(kLlama2, kMerges + R"(,"▁ ▁","▁ ▁▁","▁▁ ▁▁","▁▁ ▁","▁ ▁▁▁","▁▁▁ ▁")");
  const std::string last = "\"▁ab\":264";
  text.insert(text.find(last) + last.size(), R"(,"▁▁":265,"▁▁▁":266,"▁▁▁▁":267)");
  const auto tokenizer = made(files(text));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->encode("   ", true, false), ElementsAre(267));
  EXPECT_THAT(tokenizer->encode("  ab", true, false), ElementsAre(265, 264));
}

TEST(TokenizerJson, APrefixOnlyAtTheStart) {
  const auto tokenizer = made(files(spm(kFirst, kMerges)));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->encode("a</s>a", true, false), ElementsAre(262, 2, 260));
  EXPECT_THAT(tokenizer->encode("</s>a", true, false), ElementsAre(2, 260));
}

TEST(TokenizerJson, NeighboursAddNamesTemplateAndEnds) {
  auto from = files(spm(kLlama2, kMerges));
  from.config =
      R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","add_bos_token":false,)"
      R"("chat_template":[{"name":"rag","template":"x"},{"name":"default","template":"y"}]})";
  from.eos_ids = {2, 264, 263, 262};
  auto spec = read_tokenizer_json(from);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_FALSE(spec->add_bos);
  EXPECT_EQ(spec->eos, 2);
  EXPECT_EQ(spec->chat_template, "y");
  const auto tokenizer = made(from);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_THAT(tokenizer->stop_tokens(), ::testing::UnorderedElementsAre(2, 262, 263, 264));
  from.chat_template = "z";
  spec = read_tokenizer_json(from);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->chat_template, "z") << "the file goes before the key";
}

TEST(TokenizerJson, TokensBeyondTheEmbeddingAreLeftOut) {
  auto from = files(std::string(kByteLevel));
  from.vocab_size = 7;
  const auto spec = read_tokenizer_json(from);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->tokens.size(), 7U);
  EXPECT_THAT(spec->strip_left, ::testing::IsEmpty());
}

std::string with(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TokenizerJson, WhatTheSpecCannotSayIsRefused) {
  const std::string bytes(kByteLevel);
  const std::string pieces = spm(kLlama2, kMerges);
  const std::vector<std::pair<std::string, const char*>> cases{
      {"{", "not JSON"},
      {"{}", "model is missing"},
      {with(bytes, "\"BPE\"", "\"Unigram\""), "type \"Unigram\" is not supported; known: BPE"},
      {with(bytes, "\"BPE\",", "\"BPE\",\"dropout\":0.1,"), "dropout"},
      {with(bytes, "\"BPE\",", "\"BPE\",\"end_of_word_suffix\":\"</w>\","), "end_of_word_suffix"},
      {with(bytes, "\"a\":0", "\"a\":-1"), "not a whole number"},
      {with(bytes, "\"a\":0", "\"a\":4000000"), "which cannot be"},
      {with(bytes, "\"a\":0", "\"a\":1"), "have the id 1"},
      {with(bytes, "\"a\":0", "\"a\":0,\"a\":9"), "has the ids 0 and 9"},
      {with(bytes, "\"id\":6", "\"id\":0"), "have the id 0"},
      {with(bytes, "\"special\":true", "\"single_word\":true"), "single_word"},
      {with(bytes, "\"a b\"", "\"ab\""), "merge 0 is not two texts"},
      {with(bytes, "\"a b\"", "[\"a\"]"), "merge 0 is not two texts"},
      {with(bytes, "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}"), "Lowercase"},
      {with(bytes, "\"add_prefix_space\":false", "\"add_prefix_space\":true"), "add_prefix_space"},
      {with(bytes, "\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\""), "ByteLevel"},
      {with(bytes,
            R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false})",
            R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split",)"
            R"("pattern":{"Regex":"x+"},"behavior":"Isolated"},)"
            R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})"),
       "is not how a known family cuts text"},
      {with(bytes, "\"post_processor\":null", R"("post_processor":{"type":"BertProcessing"})"),
       "BertProcessing"},
      {with(pieces, "\"<0x00>\":3,", ""), "256 tokens"},
      {with(pieces, "\"▁ a\",", ""), "merges lack '▁' and 'a'"},
      {with(pieces, "\"▁ ab\",\"▁a b\"", "\"▁ ab\",\"▁ a\",\"▁a b\""), "again, after other tokens"},
      {with(pieces, "\"▁a b\"", "\"b a\""), "is not in vocab"},
      {with(pieces, "\"prepend\":\"▁\"", "\"prepend\":\"x\""), "prepended"},
      {with(pieces, "{\"String\":\" \"}", "{\"String\":\"_\"}"), "replaced"},
      {spm("\"normalizer\":null,", kMerges), "nothing replaces spaces"},
      {with(spm(kFirst, kMerges), "\"split\":false", "\"split\":true"), "split: false"},
  };
  for (const auto& [text, message] : cases) {
    const auto spec = read_tokenizer_json(files(text));
    ASSERT_FALSE(spec) << message;
    EXPECT_EQ(spec.error().code, ErrorCode::InvalidModel);
    EXPECT_THAT(spec.error().message, HasSubstr("dir/tokenizer.json"));
    EXPECT_THAT(spec.error().message, HasSubstr(message));
  }
  auto from = files(bytes);
  from.eos_ids = {99};
  const auto spec = read_tokenizer_json(from);
  ASSERT_FALSE(spec);
  EXPECT_THAT(spec.error().message, HasSubstr("eos_token_id 99"));
}

// Made by tools/golden/make_hf_tokenizer_goldens.py with the `tokenizers` package.
TEST(TokenizerJson, IdsAreThoseOfThePackage) {
  const auto doc = JsonDoc::load("tests/golden/hf_tokenizers.json", std::size_t{16} << 20U);
  ASSERT_TRUE(doc) << doc.error().message;
  const auto list = doc->root().to_array();
  ASSERT_TRUE(list);
  std::size_t compared = 0;
  for (const auto item : *list) {
    const JsonValue entry(item, "golden");
    const std::string name(*entry.at("name")->to_string());
    const auto tokenizer = made(files(std::string(*entry.at("json")->to_string())));
    ASSERT_NE(tokenizer, nullptr) << name;
    const auto texts = *entry.at("texts")->to_array();
    const auto ids = *entry.at("ids")->to_array();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string text(texts.at(i).get_string().value());
      std::vector<TokenId> expected;
      const simdjson::dom::array row = ids.at(i).get_array().value();
      for (const auto id : row) {
        expected.push_back(static_cast<TokenId>(id.get_int64().value()));
      }
      EXPECT_EQ(tokenizer->encode(text, true, true), expected) << name << ": " << text;
      ++compared;
    }
  }
  EXPECT_GT(compared, 150U);
}

}  // namespace
}  // namespace baton::engine
