#include "bench/gateway/gateway_bench.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "bench/cluster/response_reader.h"
#include "bench/gateway/chat_bodies.h"

namespace baton::bench {
namespace {

struct Read {
  ResponseReader reader;
  std::string body;
  std::size_t used = 0;
};

Read read_in_pieces(const std::string& bytes, std::size_t piece) {
  Read read;
  for (std::size_t at = 0; at < bytes.size() && !read.reader.is_done(); at += piece) {
    read.used += read.reader.feed(bytes.substr(at, piece),
                                  [&](std::string_view part) { read.body += part; });
  }
  return read;
}

TEST(ResponseReader, ReadsChunksWhereverTheyAreCut) {
  const std::string response =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\n10\r\n 0\r\n\r\n and more!\r\n0\r\n\r\n";
  for (std::size_t piece = 1; piece <= response.size() + 4; ++piece) {
    const Read read = read_in_pieces(response + "HTTP", piece);
    EXPECT_TRUE(read.reader.is_done()) << piece;
    EXPECT_EQ(read.body, "hello 0\r\n\r\n and more!") << piece;
    EXPECT_EQ(read.used, response.size()) << piece;
    EXPECT_EQ(read.reader.status(), 200);
  }
}

TEST(ResponseReader, ReadsAKnownLengthAndTheHint) {
  const std::string response =
      "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\ncontent-length: 4\r\n\r\nbusy";
  for (std::size_t piece = 1; piece <= response.size(); ++piece) {
    const Read read = read_in_pieces(response, piece);
    EXPECT_TRUE(read.reader.is_done()) << piece;
    EXPECT_EQ(read.body, "busy") << piece;
    EXPECT_EQ(read.reader.status(), 429);
    EXPECT_TRUE(read.reader.has_retry_after());
  }
}

TEST(ResponseReader, ABodyOfNoLengthIsWholeOnceTheServerCloses) {
  Read read = read_in_pieces("HTTP/1.1 200 OK\r\n\r\nas it comes", 7);
  EXPECT_EQ(read.body, "as it comes");
  EXPECT_FALSE(read.reader.is_done());
  read.reader.end();
  EXPECT_TRUE(read.reader.is_done());
  read = read_in_pieces("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", 7);
  read.reader.end();
  EXPECT_FALSE(read.reader.is_done());
}

TEST(ResponseReader, RefusesWhatIsNoResponse) {
  for (const char* bytes : {"GET / HTTP/1.1\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"}) {
    EXPECT_TRUE(read_in_pieces(bytes, 7).reader.is_broken()) << bytes;
  }
}

TEST(ChatBodies, HaveTheSizeAreJsonAndDiffer) {
  std::set<std::string> seen;
  for (std::uint64_t number = 0; number < 40; ++number) {
    for (const std::size_t bytes : {std::size_t{512}, std::size_t{2048 + number}}) {
      const std::string body = chat_body(bytes, number, 3);
      EXPECT_EQ(body.size(), bytes);
      boost::json::error_code bad;
      const auto value = boost::json::parse(body, bad);
      ASSERT_FALSE(bad) << body;
      EXPECT_EQ(value.at("max_tokens").to_number<int>(), 3);
      EXPECT_TRUE(seen.insert(body).second);
    }
  }
}

TEST(GatewayBench, LatencyOfLargeBodiesLeavesTheTokenizerOut) {
  RequestRow row;
  row.gateway = {.p50 = 1000, .p99 = 2000};
  row.bare = {.p50 = 100, .p99 = 200};
  row.cost.tokenize_us = 300;
  row.cpu_us = 500;
  EXPECT_EQ(row.added_p50_us(), 900);
  row.tokenizer_beside = true;
  EXPECT_EQ(row.added_p50_us(), 600);
  EXPECT_EQ(row.added_p99_us(), 1500);
  EXPECT_EQ(row.cpu_us_per_request(), 200);
}

TEST(GatewayBench, JsonHoldsEveryPartThatRan) {
  GatewayBenchReport report;
  EXPECT_EQ(to_json(report), "{}");
  report.small.emplace();
  report.small->bare = {.p50 = 100, .p99 = 200};
  report.peers.push_back({.name = "nginx", .small = {.first = {.p50 = 130, .p99 = 250}}});
  report.peers.push_back({.name = "vllm-router", .missing = "not installed"});
  report.flood.emplace();
  report.open.push_back({.streams = 2000, .memory_kib = 9.5});
  report.open.push_back({.streams = 8000, .memory_kib = 8.5});
  report.soak.emplace();
  report.overload.emplace();
  const auto json = boost::json::parse(to_json(report));
  EXPECT_TRUE(json.at("small").as_object().contains("cpu_us_per_request"));
  EXPECT_FALSE(json.as_object().contains("large"));
  EXPECT_EQ(json.at("stream").at("memory_kib_per_stream").as_double(), 9.5);
  EXPECT_EQ(json.at("stream").at("open").as_array().size(), 2U);
  const auto& peers = json.at("peers").as_array();
  ASSERT_EQ(peers.size(), 2U);
  EXPECT_EQ(peers[0].at("small").at("added_p50_us").as_double(), 30);
  EXPECT_EQ(peers[0].at("small").at("added_p99_us").as_double(), 50);
  EXPECT_TRUE(peers[1].at("missing").as_bool());
  EXPECT_TRUE(json.as_object().contains("soak"));
  EXPECT_TRUE(json.as_object().contains("overload"));
}

}  // namespace
}  // namespace baton::bench
