// The bytes of a TokenizerSpec: round trip, and damage of every sort gives an error, never a crash.
#include <gtest/gtest.h>

#include <random>

#include "engine/tokenizer/tokenizer.h"

namespace baton::engine {
namespace {

TokenizerSpec small_spec() {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre_tokenizer = "smollm";
  spec.tokens = {"<|endoftext|>", "a", "b", "ab", std::string("\0x", 2)};
  spec.scores = {0.0F, -1.5F, 3e10F, -0.0F, 1.0F};
  spec.kinds = {TokenKind::Control,
                TokenKind::Normal,
                TokenKind::Normal,
                TokenKind::UserDefined,
                TokenKind::Byte};
  spec.merges = {"a b"};
  spec.bos = 0;
  spec.eos = 4;
  spec.unknown = -1;
  spec.add_bos = true;
  spec.add_space_prefix = false;
  spec.space_prefix_once = true;
  spec.strip_left = {1};
  spec.strip_right = {4, 0};
  spec.more_stops = {2, 3};
  spec.chat_template = "{{ messages }}";
  spec.architecture = "llama";
  return spec;
}

TEST(TokenizerSpec, RoundTrip) {
  const TokenizerSpec spec = small_spec();
  const auto parsed = TokenizerSpec::parse(spec.serialize());
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->model, spec.model);
  EXPECT_EQ(parsed->pre_tokenizer, spec.pre_tokenizer);
  EXPECT_EQ(parsed->tokens, spec.tokens);
  EXPECT_EQ(parsed->scores, spec.scores);
  EXPECT_EQ(parsed->kinds, spec.kinds);
  EXPECT_EQ(parsed->merges, spec.merges);
  EXPECT_EQ(parsed->bos, 0);
  EXPECT_EQ(parsed->eos, 4);
  EXPECT_EQ(parsed->eot, -1);
  EXPECT_EQ(parsed->unknown, -1);
  EXPECT_TRUE(parsed->add_bos);
  EXPECT_FALSE(parsed->add_eos);
  EXPECT_FALSE(parsed->add_space_prefix);
  EXPECT_TRUE(parsed->space_prefix_once);
  EXPECT_EQ(parsed->strip_left, spec.strip_left);
  EXPECT_EQ(parsed->strip_right, spec.strip_right);
  EXPECT_EQ(parsed->more_stops, spec.more_stops);
  EXPECT_EQ(parsed->chat_template, spec.chat_template);
  EXPECT_EQ(parsed->architecture, spec.architecture);
  EXPECT_EQ(parsed->hash(), spec.hash());
}

TEST(TokenizerSpec, HashSeesEveryField) {
  const std::uint64_t base = small_spec().hash();
  auto changed = small_spec();
  changed.add_eos = true;
  EXPECT_NE(changed.hash(), base);
  changed = small_spec();
  changed.chat_template += " ";
  EXPECT_NE(changed.hash(), base);
  changed = small_spec();
  std::swap(changed.tokens[1], changed.tokens[2]);
  EXPECT_NE(changed.hash(), base);
}

TEST(TokenizerSpec, EveryTruncationIsRefused) {
  const std::string bytes = small_spec().serialize();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto parsed = TokenizerSpec::parse(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(parsed) << size;
    EXPECT_FALSE(parsed.error().message.empty());
  }
  EXPECT_FALSE(TokenizerSpec::parse(bytes + "x"));
}

TEST(TokenizerSpec, HugeCountsTakeNoMemory) {
  std::string bytes = "BTS2";
  bytes += std::string("\4gpt2\0", 6);
  bytes += "\xFF\xFF\xFF\xFF\x0F";
  const auto parsed = TokenizerSpec::parse(bytes);
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("tokens"), std::string::npos) << parsed.error().message;
}

TEST(TokenizerSpec, DamagedBytesNeverCrash) {
  const std::string good = small_spec().serialize();
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (auto parsed = TokenizerSpec::parse(bytes)) {
      EXPECT_EQ(TokenizerSpec::parse(parsed->serialize())->hash(), parsed->hash());
    }
  }
}

}  // namespace
}  // namespace baton::engine
