// The benchmark itself: that it runs over both lanes, checks what it moved, and that its figures
// agree with each other. No speed is judged.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>

#include "bench/transfer/transfer_bench.h"
#include "bench/transfer/transfer_pair.h"
#include "bench/transfer/transfer_peers.h"

namespace baton::bench {
namespace {

TEST(TransferBench, RunsOverBothLanesAndItsFiguresAgree) {
  TransferBenchOptions options;
  options.sizes = {4096, 65536};
  options.descriptors = {1, 100};
  options.repetitions = 1;
  options.probe = PROBE_PROGRAM;
  const auto rows = run_transfer_bench(options);
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  ASSERT_EQ(rows->size(), 8U);
  const std::string text = to_json(*rows) + "}";
  simdjson::dom::parser parser;
  simdjson::dom::array parsed;
  ASSERT_EQ(parser.parse(text)["rows"].get(parsed), simdjson::SUCCESS) << text;
  std::size_t i = 0;
  for (const simdjson::dom::element row : parsed) {
    const auto figure = [&](const char* key) {
      double value = -1;
      EXPECT_EQ(row[key].get(value), simdjson::SUCCESS) << key;
      return value;
    };
    EXPECT_EQ(std::string_view(row["transport"]), i < 4 ? "tcp" : "shm");
    const double bytes = figure("bytes");
    EXPECT_EQ(bytes, i % 4 < 2 ? 4096 : 65536);
    EXPECT_EQ(figure("descriptors"), i % 2 == 0 ? 1 : 100);
    for (const char* key : {"gb_per_s", "raw_gb_per_s", "memcpy_gb_per_s", "us_per_op"}) {
      EXPECT_GT(figure(key), 0) << key;
    }
    EXPECT_GE(figure("cpu_s_per_gib"), 0);
    // The better loop counts, and time and speed of an operation say the same.
    EXPECT_EQ(figure("raw_gb_per_s"),
              std::max(figure("raw_put_gb_per_s"), figure("raw_am_gb_per_s")));
    EXPECT_NEAR(figure("ratio_to_raw"), (*rows)[i].gb_per_s / (*rows)[i].raw_gb_per_s, 0.0001);
    EXPECT_NEAR((*rows)[i].us_per_op * (*rows)[i].gb_per_s * 1000, bytes, bytes * 0.001);
    ++i;
  }
  EXPECT_EQ(i, rows->size());
}

TEST(TransferBench, TurnsBringEveryByteToItsPlace) {
  for (const char* transport : {"tcp", "shm"}) {
    const auto pair = TransferPair::create(
        {.probe = PROBE_PROGRAM, .transport = transport, .bytes = 4096, .descriptors = 50});
    ASSERT_TRUE(pair.has_value()) << pair.error().message;
    const auto before = (*pair)->verify();
    ASSERT_TRUE(before.has_value());
    EXPECT_FALSE(*before) << "nothing was sent yet";
    ASSERT_TRUE((*pair)->turn_ours().has_value());
    const auto after = (*pair)->verify();
    ASSERT_TRUE(after.has_value());
    EXPECT_TRUE(*after);
    // The bare loops arrange the blocks otherwise: forwards.
    for (const bool is_put : {true, false}) {
      ASSERT_TRUE((is_put ? (*pair)->turn_raw_put() : (*pair)->turn_raw_am()).has_value());
      const auto moved = (*pair)->verify();
      ASSERT_TRUE(moved.has_value());
      EXPECT_FALSE(*moved) << (is_put ? "put" : "am") << " moved nothing";
      ASSERT_TRUE((*pair)->turn_ours().has_value());
    }
  }
}

TEST(TransferBench, PeerThatIsNotInstalledSaysSoInItsRow) {
  TransferPeersOptions options;
  options.probe = PROBE_PROGRAM;
  options.folder = "/no/such/folder";
  options.transports = {"tcp"};
  options.cells = {{4096, 16}};
  options.repetitions = 1;
  const auto rows = run_transfer_peers(options);
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  ASSERT_EQ(rows->size(), 3U);
  for (const TransferPeerRow& row : *rows) {
    EXPECT_EQ(row.error, "not installed: run tools/peers/" + row.peer);
    EXPECT_EQ(row.ms, 0);
    EXPECT_GT(row.ours_ms, 0);
  }
}

TEST(TransferBench, WrongArgumentsAreRefused) {
  TransferBenchOptions options;
  options.probe = PROBE_PROGRAM;
  options.sizes = {1000};
  EXPECT_EQ(run_transfer_bench(options).error().code, ErrorCode::InvalidArgument);
  options.sizes = {4096};
  options.repetitions = 0;
  EXPECT_EQ(run_transfer_bench(options).error().code, ErrorCode::InvalidArgument);
  options.repetitions = 1;
  options.probe = "/no/such/program";
  EXPECT_EQ(run_transfer_bench(options).error().code, ErrorCode::IoError);
}

}  // namespace
}  // namespace baton::bench
