#include "transfer/message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace baton::transfer {
namespace {

MessageHeader sample(std::size_t runs) {
  MessageHeader header;
  header.lease = {0x0123456789abcdefULL, 0xfedcba9876543210ULL};
  header.epoch = Epoch{77};
  header.layer = 29;
  header.lane = Lane::Tcp;
  for (std::uint32_t i = 0; i < runs; ++i) {
    header.add_run({BlockId{i * 1000}, i + 1});
  }
  return header;
}

TEST(Message, RoundTrip) {
  for (const std::size_t runs : {1U, 2U, 63U, 64U}) {
    const MessageHeader header = sample(runs);
    EncodedHeader encoded;
    encode(header, encoded);
    EXPECT_EQ(encoded.size, kHeaderFixedBytes + runs * 8);
    MessageHeader back;
    ASSERT_TRUE(decode(encoded.span(), back).has_value());
    EXPECT_EQ(back.lease, header.lease);
    EXPECT_EQ(back.epoch, header.epoch);
    EXPECT_EQ(back.layer, header.layer);
    EXPECT_EQ(back.lane, header.lane);
    ASSERT_EQ(back.num_runs, runs);
    EXPECT_TRUE(std::equal(back.runs().begin(), back.runs().end(), header.runs().begin()));
    EXPECT_EQ(back.num_blocks(), runs * (runs + 1) / 2);
  }
}

TEST(Message, NoRunsIsMalformed) {
  EncodedHeader encoded;
  encode(sample(0), encoded);
  MessageHeader back;
  EXPECT_FALSE(decode(encoded.span(), back).has_value());
}

// Whatever bytes come: decode refuses them, or encoding what it understood gives the same bytes.
TEST(Message, RandomBytesAreRefusedOrUnderstoodExactly) {
  std::mt19937_64 rng(11);
  EncodedHeader good;
  encode(sample(5), good);
  int understood = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::vector<std::byte> bytes(good.span().begin(), good.span().end());
    const int changes = static_cast<int>(rng() % 4);
    for (int i = 0; i < changes; ++i) {
      bytes[rng() % bytes.size()] = static_cast<std::byte>(rng());
    }
    if (rng() % 4 == 0) {
      bytes.resize(rng() % (kMaxHeaderBytes + 20));
    }
    MessageHeader header;
    if (decode(bytes, header)) {
      ++understood;
      EncodedHeader again;
      encode(header, again);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), again.span().begin(), again.span().end()));
    }
  }
  EXPECT_GT(understood, 1000);
}

TEST(Message, EveryLaneHasAName) {
  for (std::uint8_t lane = 1; lane < kLaneCount; ++lane) {
    EXPECT_NE(to_string(static_cast<Lane>(lane)), "unknown");
  }
}

}  // namespace
}  // namespace baton::transfer
