// Frames as bytes: every split, every limit, and random damage.
#include "common/rpc/frame_codec.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include "common/base/random.h"

namespace baton {
namespace {

wire::Frame sample(int number) {
  wire::Frame frame;
  frame.set_call(static_cast<std::uint64_t>(number));
  frame.mutable_cancel()->set_reason(std::string(static_cast<std::size_t>(number % 300), 'x'));
  return frame;
}

TEST(FrameCodec, LengthIsLittleEndian) {
  std::string bytes;
  wire::Frame frame;
  frame.mutable_cancel()->set_reason(std::string(300, 'x'));
  ASSERT_TRUE(encode_frame(frame, bytes));
  const auto size = frame.ByteSizeLong();
  ASSERT_EQ(bytes.size(), size + 4);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]), size & 0xff);
  EXPECT_EQ(static_cast<unsigned char>(bytes[1]), size >> 8);
  EXPECT_EQ(bytes[2], 0);
  EXPECT_EQ(bytes[3], 0);
}

TEST(FrameCodec, AnySplitGivesTheSameFrames) {
  std::string bytes;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(encode_frame(sample(i), bytes));
  }
  for (const std::size_t piece : {1U, 2U, 3U, 5U, 7U, 64U, 1000U, 100000U}) {
    FrameDecoder decoder;
    int count = 0;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      decoder.feed(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at)));
      for (auto frame = decoder.next(); frame.has_value() && frame->has_value();
           frame = decoder.next()) {
        EXPECT_EQ((*frame)->SerializeAsString(), sample(count).SerializeAsString());
        ++count;
      }
    }
    EXPECT_EQ(count, 50);
    EXPECT_EQ(decoder.pending_bytes(), 0U);
  }
}

TEST(FrameCodec, EmptyFrameIsAFrame) {
  FrameDecoder decoder;
  decoder.feed(std::string(4, '\0'));
  const auto frame = decoder.next();
  ASSERT_TRUE(frame && *frame);
  EXPECT_EQ((*frame)->body_case(), wire::Frame::BODY_NOT_SET);
}

TEST(FrameCodec, RefusesOversizeBothWays) {
  wire::Frame frame;
  frame.mutable_artifact_chunk()->set_data(std::string(kMaxFrameBytes, 'x'));
  std::string bytes = "before";
  const auto status = encode_frame(frame, bytes);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(bytes, "before");

  FrameDecoder decoder;
  decoder.feed(std::string("\x01\x00\x40\x00", 4));  // 4 MiB + 1
  const auto got = decoder.next();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::ProtocolError);
  EXPECT_EQ(got.error().message, "a frame announces 4194305 bytes, at most 4194304 are allowed");
  decoder.feed(std::string(4, '\0'));
  EXPECT_FALSE(decoder.next()) << "a broken decoder must stay broken";
}

TEST(FrameCodec, SurvivesRandomBytesAndDamage) {
  const google::protobuf::LogSilencer quiet;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    auto random = seeded_random(seed);
    std::string bytes;
    if (seed % 2 == 0) {
      for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(encode_frame(sample(static_cast<int>(random() % 300)), bytes));
      }
      for (int i = 0; i < 3; ++i) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
    } else {
      bytes.resize(random() % 200);
      for (auto& c : bytes) {
        c = static_cast<char>(random() % 4 == 0 ? random() : random() % 8);
      }
    }
    FrameDecoder decoder;
    std::size_t at = 0;
    while (at < bytes.size()) {
      const auto piece = std::min<std::size_t>(1 + random() % 40, bytes.size() - at);
      decoder.feed(std::span(bytes).subspan(at, piece));
      at += piece;
      auto frame = decoder.next();
      while (frame.has_value() && frame->has_value()) {
        frame = decoder.next();
      }
      if (!frame) {
        EXPECT_EQ(frame.error().code, ErrorCode::ProtocolError) << "seed " << seed;
        break;
      }
    }
  }
}

}  // namespace
}  // namespace baton
