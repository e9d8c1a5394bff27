// What the engine benchmark's processes say to each other, and how its report is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "bench/engine/engine_bench.h"
#include "bench/engine/engine_turn.h"

namespace baton::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(EngineWork, IsReadAsItIsWritten) {
  for (const char* text : {"prefill:512", "decode:64:8:512", "decode:512:1:0"}) {
    const auto work = EngineWork::parse(text);
    ASSERT_TRUE(work) << text;
    EXPECT_EQ(work->to_string(), text);
  }
  for (const char* text : {"",
                           "prefill",
                           "prefill:",
                           "prefill:0",
                           "prefill:x",
                           "prefill:1:2",
                           "decode:1:2",
                           "decode:1:0:5",
                           "decode:1:2:3:4",
                           "other:1:2:3",
                           "prefill:99999999",
                           "prefill:-1",
                           "decode:1:2:3 "}) {
    EXPECT_FALSE(EngineWork::parse(text)) << text;
  }
}

TEST(EngineTurn, IsReadAsItIsWritten) {
  const EngineTurn turn{.tokens_per_s = {1.5, 20},
                        .load_seconds = 0.25,
                        .has_float_weights = true,
                        .has_bfloat_weights = true,
                        .step_weight_bytes = 100,
                        .kv_bytes_per_token = 30,
                        .row_products = 7,
                        .head_products = 8};
  const auto read = EngineTurn::parse(turn.to_json());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->to_json(), turn.to_json());
  EXPECT_EQ(read->tokens_per_s, turn.tokens_per_s);
  EXPECT_FALSE(EngineTurn::parse("{}"));
  EXPECT_FALSE(EngineTurn::parse("baton: no such file"));
}

EngineBenchReport some_report() {
  EngineBenchReport report;
  report.roofs.push_back({.threads = 2, .read_bytes_per_s = 20e9, .int8_instruction = "x"});
  EngineBenchRow row{.file = "a \"b\".gguf",
                     .phase = "decode",
                     .tokens = 32,
                     .batch = 8,
                     .context = 512,
                     .threads = 2,
                     .tokens_per_s = 600,
                     .peer_tokens_per_s = 200,
                     .ratio = 3,
                     .peer_setting = "fa",
                     .peak_share = 0.4,
                     .memory_share = 0.5,
                     .attention_memory_share = 0.75};
  report.rows.push_back(row);
  report.loads.push_back({.file = row.file,
                          .threads = 2,
                          .first_s = 0.9,
                          .second_s = 0.25,
                          .peer_s = 0.5,
                          .peak_rss = 200U << 20U,
                          .peer_peak_rss = 400U << 20U});
  return report;
}

TEST(EngineReport, JsonIsJson) {
  simdjson::dom::parser parser;
  const std::string text = to_json(some_report());
  simdjson::dom::element root;
  ASSERT_EQ(parser.parse(text).get(root), simdjson::SUCCESS) << text;
  double ratio = 0;
  ASSERT_EQ(root["rows"].at(0)["ratio"].get(ratio), simdjson::SUCCESS);
  EXPECT_EQ(ratio, 3);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(EngineReport, TablesShowRatiosAndWhatIsUnknown) {
  EngineBenchReport report = some_report();
  EXPECT_THAT(to_text(report), HasSubstr("3.00"));
  EXPECT_THAT(to_text(report), HasSubstr("######"));
  EXPECT_THAT(to_text(report), HasSubstr("200.0 fa"));
  EXPECT_THAT(to_markdown(report),
              HasSubstr("| i16 | 600.0 | 200.0 fa | 3.00 | 0.40 int8 | 0.50 (attention 0.75) |"));
  EXPECT_THAT(to_markdown(report), HasSubstr("| 0.900 | 0.250 | 0.500 | 200 | 400 |"));
  EXPECT_THAT(to_text(report), Not(HasSubstr("BF16")));
  report.float_path = "avx512_bf16";
  report.roofs[0].bf16_flops_per_s = 500e9;
  report.rows[0].is_float = true;
  report.rows[0].is_bfloat = true;
  EXPECT_THAT(to_text(report), StartsWith("float path of ours: avx512_bf16\n"));
  EXPECT_THAT(to_markdown(report), HasSubstr("500 GFLOP/s BF16"));
  EXPECT_THAT(to_markdown(report), HasSubstr("| 0.40 BF16 |"));
  report.rows[0].peer_tokens_per_s = 0;
  report.rows[0].ratio = 0;
  EXPECT_THAT(to_markdown(report), HasSubstr("| 600.0 | - | - |"));
  EXPECT_THAT(to_text(report), Not(HasSubstr("#")));
}

}  // namespace
}  // namespace baton::bench
