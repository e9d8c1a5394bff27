// How the report of `bench interference` is told.
#include "bench/cluster/interference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::bench {
namespace {

using ::testing::HasSubstr;

TEST(InterferenceReport, TablesHaveTheSameCells) {
  InterferenceRow row{.name = "a server",
                      .undisturbed = {.count = 9, .p50 = 10, .p99 = 20, .worst = 30},
                      .disturbed = {.count = 9, .p50 = 11, .p99 = 25, .worst = 45},
                      .first_token_s = {3, 1, 2},
                      .compared_tokens = 77,
                      .same_tokens = true};
  EXPECT_THAT(to_markdown({row}),
              HasSubstr("| a server | 10.00 / 20.00 / 30.0 | 11.00 / 25.00 / 45.0 | 1.25 | 4.5 | "
                        "2.00, 3.00 | 77 of 77 |\n"));
  EXPECT_THAT(to_text({row}),
              HasSubstr("10.00   20.00     30.0     11.00   25.00     45.0   1.25    4.5   2.00   "
                        "3.00    yes\n"));
  row.same_tokens = false;
  EXPECT_THAT(to_markdown({row}), HasSubstr("| no |\n"));
  EXPECT_THAT(to_text({row}), HasSubstr(" NO\n"));
}

}  // namespace
}  // namespace baton::bench
