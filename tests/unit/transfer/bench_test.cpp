// The benchmark itself: that it runs over both lanes and reports what it moved. No figure is
// judged.
#include <gtest/gtest.h>

#include "bench/transfer_bench.h"

namespace baton::bench {
namespace {

TEST(TransferBench, RunsOverBothLanes) {
  TransferBenchOptions options;
  options.sizes = {4096, 65536};
  options.descriptors = {1, 100};
  options.repetitions = 1;
  options.probe = PROBE_PROGRAM;
  const auto rows = run_transfer_bench(options);
  ASSERT_TRUE(rows.has_value()) << rows.error().message;
  ASSERT_EQ(rows->size(), 8U);
  for (const TransferBenchRow& row : *rows) {
    EXPECT_GT(row.gb_per_s, 0);
    EXPECT_GT(row.raw_gb_per_s, 0);
    EXPECT_GT(row.us_per_op, 0);
  }
  EXPECT_NE(to_json(*rows).find("\"ratio_to_raw\": "), std::string::npos);
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
