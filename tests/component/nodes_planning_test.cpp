// Whose prompt is computed first on a prefill node, and that it changes no token.
#include <gtest/gtest.h>

#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

class NodesPlanningTest : public NodesFixture {
 protected:
  NodesPlanningTest() : NodesFixture(small_chunks()) {
    cluster_.add("decode", "d0", 200);
    cluster_.add("prefill", "p0", 200);
  }
};

TEST_F(NodesPlanningTest, AShortPromptDoesNotWaitForLongOnes) {
  const GenerateRequest a = make_request(1, 400, 5, 1);
  const GenerateRequest b = make_request(2, 400, 5, 2);
  const GenerateRequest c = make_request(3, 400, 5, 3);
  for (const auto* each : {&a, &b, &c}) {
    cluster_.start(*each, "p0", "d0");
  }
  ASSERT_TRUE(cluster_.run_until([&] { return steps("p0") > 3; }));
  const GenerateRequest brief = make_request(4, 4, 3, 4);
  const std::size_t before = steps("p0");
  cluster_.start(brief, "p0", "d0");
  ASSERT_TRUE(cluster_.run_until([&] { return !cluster_.answer(brief).tokens.empty(); }));
  EXPECT_LE(steps("p0") - before, 6U);  // its way there, and one step in work
  EXPECT_TRUE(cluster_.answer(a).tokens.empty());
  for (const auto* each : {&a, &b, &c, &brief}) {
    cluster_.finish(*each);
    expect_same(*each);
  }
  cluster_.settle();
  EXPECT_TRUE(cluster_.all_clean());
}

TEST_F(NodesPlanningTest, TheEarliestDeadlineIsFirst) {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 4; ++i) {
    requests.push_back(make_request(1 + i, 200, 5, i));
    requests.back().deadline = std::chrono::seconds(i == 3 ? 30 : 600);
    cluster_.start(requests.back(), "p0", "d0");
  }
  ASSERT_TRUE(cluster_.run_until([&] { return !cluster_.answer(requests[3]).tokens.empty(); }));
  // Beside its chunks a step has room for one more request's.
  EXPECT_TRUE(cluster_.answer(requests[1]).tokens.empty());
  EXPECT_TRUE(cluster_.answer(requests[2]).tokens.empty());
  for (const GenerateRequest& request : requests) {
    cluster_.finish(request);
    expect_same(request);
  }
  cluster_.settle();
}

}  // namespace
}  // namespace baton::testing
