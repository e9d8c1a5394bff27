// The lines on pools that `baton status` prints.
#include "cli/pool_lines.h"

#include <gtest/gtest.h>

namespace baton::cli {
namespace {

std::string lines(const std::string& pools) {
  return pool_lines(boost::json::parse(R"({"pools":)" + pools + "}").as_object());
}

TEST(PoolLines, SayNodesWhatTheyShouldBeAndReplicas) {
  EXPECT_EQ(lines(R"([{"model":"m","change_roles":"on","split_by":"ratio",
                       "prefill":{"nodes":2,"wanted":1,"desired_replicas":1},
                       "decode":{"nodes":1,"wanted":2,"desired_replicas":3}}])"),
            "pools of m (change_roles: on)\n"
            "  prefill: 2 nodes, ratio wants 1; 1 replica desired\n"
            "  decode: 1 node, ratio wants 2; 3 replicas desired\n");
}

TEST(PoolLines, NothingIsWantedOfPoolsThatAreAsTheyShouldBe) {
  EXPECT_EQ(lines(R"([{"model":"m","change_roles":"off","split_by":"load",
                       "prefill":{"nodes":1,"wanted":1,"desired_replicas":1},
                       "decode":{"nodes":0,"wanted":0,"desired_replicas":1}}])"),
            "pools of m (change_roles: off)\n"
            "  prefill: 1 node; 1 replica desired\n"
            "  decode: 0 nodes; 1 replica desired\n");
}

TEST(PoolLines, NoPoolsNoLine) {
  EXPECT_EQ(lines("[]"), "");
  EXPECT_EQ(pool_lines({}), "");
}

}  // namespace
}  // namespace baton::cli
