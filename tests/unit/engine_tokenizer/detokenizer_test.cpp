// Streams of token bytes become whole UTF-8, whatever the cuts.
#include <gtest/gtest.h>

#include <random>

#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

// Token i is byte i.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool space_prefix = false) {
    spec_.model = "llama";
    spec_.add_space_prefix = space_prefix;
    for (int i = 0; i < 256; ++i) {
      bytes_.push_back(static_cast<char>(i));
    }
  }
  const TokenizerSpec& spec() const override { return spec_; }
  std::size_t vocab_size() const override { return 256; }
  std::vector<TokenId> encode(std::string_view, bool, bool) const override { return {}; }
  std::vector<TokenId> encode(std::span<const PromptPiece>, bool) const override { return {}; }
  std::string_view token_bytes(TokenId id, bool) const override {
    return std::string_view(bytes_).substr(static_cast<std::size_t>(id), 1);
  }
  std::size_t least_tokens(std::size_t bytes) const override { return bytes; }
  std::span<const TokenId> stop_tokens() const override { return {}; }

 private:
  TokenizerSpec spec_;
  std::string bytes_;
};

std::string stream(const Tokenizer& tokenizer, std::string_view bytes) {
  Detokenizer detokenizer(tokenizer);
  std::string out;
  for (const char byte : bytes) {
    const std::string part = detokenizer.push(static_cast<std::uint8_t>(byte));
    EXPECT_TRUE(is_valid_utf8(part));
    out += part;
  }
  return out + detokenizer.flush();
}

TEST(Detokenizer, HoldsBackUnfinishedCharacters) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "😀");
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST(Detokenizer, BrokenBytesAreReplaced) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(stream(tokenizer, "a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(stream(tokenizer, "\x80\xBF"), "\uFFFD\uFFFD");
  EXPECT_EQ(stream(tokenizer, "\xE2\x82z"), "\uFFFDz");      // cut short by another character
  EXPECT_EQ(stream(tokenizer, "\xC0\xAF"), "\uFFFD\uFFFD");  // overlong
  EXPECT_EQ(stream(tokenizer, "\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
}

TEST(Detokenizer, TakesOffTheAddedSpaceOnce) {
  const ByteTokenizer tokenizer(true);
  EXPECT_EQ(stream(tokenizer, " a b"), "a b");
  EXPECT_EQ(stream(tokenizer, "a b"), "a b");
  EXPECT_EQ(stream(ByteTokenizer(false), " a b"), " a b");
}

TEST(Detokenizer, StreamEqualsSanitizedWhole) {
  const ByteTokenizer tokenizer;
  std::mt19937_64 random(11);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    const std::size_t size = random() % 24;
    for (std::size_t i = 0; i < size; ++i) {
      // Mostly lead and continuation bytes, so that near misses are common.
      const std::uint64_t kind = random() % 4;
      bytes.push_back(static_cast<char>(kind == 0   ? random() % 128
                                        : kind == 1 ? 0xC0 + random() % 0x40
                                                    : 0x80 + random() % 0x40));
    }
    EXPECT_EQ(stream(tokenizer, bytes), sanitize_utf8(bytes));
  }
}

}  // namespace
}  // namespace baton::engine
