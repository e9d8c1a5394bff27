#include "gateway/cluster/rollout.h"

#include <gtest/gtest.h>

#include <map>

namespace baton::gateway {
namespace {

ServedModel model(const std::string& id, bool ready = true) {
  ServedModel served;
  served.id = id;
  served.nodes = 2;
  served.is_usable = ready;
  served.max_tokens = 100;
  served.artifacts = std::make_shared<ModelArtifacts>();
  return served;
}
ServedModels models() {
  return {{"old", model("old")}, {"new", model("new")}, {"other", model("other")}};
}
Rollout rollout(std::uint32_t old_weight, std::uint32_t new_weight) {
  return Rollout({{.id = "chat", .revisions = {{"old", old_weight}, {"new", new_weight}}}});
}
// Of how many of 10,000 sessions each model is.
std::map<std::string, int> shares(const Rollout& names, const ServedModels& served) {
  std::map<std::string, int> shares;
  for (int i = 0; i < 10'000; ++i) {
    const ServedModel* chosen = names.choose(served, "chat", session_of(std::to_string(i)));
    ++shares[chosen == nullptr ? "none" : chosen->id];
  }
  return shares;
}

TEST(Rollout, NamesOfNodesStayWhatTheyAre) {
  const ServedModels served = models();
  EXPECT_EQ(rollout(90, 10).choose(served, "other", 1)->id, "other");
  EXPECT_EQ(rollout(90, 10).choose(served, "nobody", 1), nullptr);
  EXPECT_EQ(Rollout({}).choose(served, "chat", 1), nullptr);
}

TEST(Rollout, WeightsAreSharesOfSessions) {
  const auto taken = shares(rollout(90, 10), models());
  EXPECT_NEAR(taken.at("old"), 9'000, 150);
  EXPECT_NEAR(taken.at("new"), 1'000, 150);
  EXPECT_EQ(shares(rollout(100, 0), models()).at("old"), 10'000);
}

TEST(Rollout, MoreWeightMovesSessionsOneWayOnly) {
  const ServedModels served = models();
  for (int i = 0; i < 2'000; ++i) {
    const std::uint64_t session = session_of(std::to_string(i));
    const std::string before = rollout(90, 10).choose(served, "chat", session)->id;
    EXPECT_EQ(rollout(90, 10).choose(served, "chat", session)->id, before);
    if (before == "new") {
      EXPECT_EQ(rollout(50, 50).choose(served, "chat", session)->id, "new");
    }
  }
}

TEST(Rollout, ARevisionWithoutAPairHandsOver) {
  ServedModels served = models();
  served["old"] = model("old", false);
  EXPECT_EQ(shares(rollout(90, 10), served).at("new"), 10'000);
  // Neither can serve: the session's own says so.
  served["new"] = model("new", false);
  EXPECT_NEAR(shares(rollout(90, 10), served).at("old"), 9'000, 150);
  // Weight 0 gets nothing, whatever else is there.
  EXPECT_EQ(shares(rollout(100, 0), served).at("old"), 10'000);
  served.erase("old");
  EXPECT_EQ(shares(rollout(100, 0), served).at("none"), 10'000);
}

TEST(Rollout, ClientsSeeTheNameAndWhatAllItsRevisionsCanDo) {
  ServedModels served = models();
  served["new"].max_tokens = 50;
  const Rollout names({{.id = "chat", .revisions = {{"old", 90}, {"new", 10}}},
                       {.id = "other", .revisions = {{"new", 1}}},
                       {.id = "later", .revisions = {{"unborn", 1}}}});
  const ServedModels visible = names.visible(served);
  ASSERT_EQ(visible.size(), 4U);
  EXPECT_EQ(visible.at("chat").max_tokens, 50U);
  EXPECT_EQ(visible.at("chat").id, "chat");
  EXPECT_EQ(visible.at("other").max_tokens, 50U) << "hides the nodes' own";
  EXPECT_TRUE(visible.contains("old"));
  EXPECT_FALSE(names.describe(served, "later"));
}

}  // namespace
}  // namespace baton::gateway
