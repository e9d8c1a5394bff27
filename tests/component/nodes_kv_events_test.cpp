// What the gateway hears of the nodes' prefix caches.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/types/prefix_hash.h"
#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

class NodesKvEvents : public NodesFixture {
 protected:
  using Names = std::set<std::uint64_t>;

  // The blocks that the gateway must think the node holds; `connections`: how often it began anew.
  Names known(const std::string& node, int* connections = nullptr) {
    Names names;
    std::uint64_t sequence = 0;
    for (const wire::KvEvents& events : cluster_.kv_events(node)) {
      if (events.reset()) {
        names.clear();
        sequence = 0;
        if (connections != nullptr) {
          ++*connections;
        }
      }
      EXPECT_EQ(events.sequence(), ++sequence);
      for (const std::uint64_t name : events.removed()) {
        names.erase(name);
      }
      names.insert(events.stored().begin(), events.stored().end());
    }
    return names;
  }
  Names held(const std::string& node) {
    const auto names = cluster_.node(node).kv().index().names();
    return {names.begin(), names.end()};
  }
  // Named as a gateway does it: from tokens and the layout that the node's Hello told.
  std::vector<std::uint64_t> names_of(const std::string& node, const std::vector<TokenId>& tokens) {
    const std::size_t block = cluster_.hello(node).model().layout().block_tokens();
    std::vector<std::uint64_t> names;
    std::uint64_t name = 0;
    for (std::size_t i = 0; i + block <= tokens.size(); i += block) {
      name = next_prefix_hash(name, std::span(tokens).subspan(i, block));
      names.push_back(name);
    }
    return names;
  }
  void ask(const GenerateRequest& request) {
    cluster_.start(request, "p0", "d0");
    cluster_.finish(request);
    expect_same(request);
    cluster_.settle();
  }
  // The gateway has heard of everything.
  bool hears_all() {
    return cluster_.run_until(
        [this] { return known("p0") == held("p0") && known("d0") == held("d0"); });
  }
};

TEST_F(NodesKvEvents, ColdPromptIsToldAndEvictedBlocksAreTakenBack) {
  cluster_.add("decode", "d0", 40);
  cluster_.add("prefill", "p0", 12);
  const GenerateRequest first = make_request(1, 100, 30);
  ask(first);
  ASSERT_TRUE(hears_all());
  const auto prompt = names_of("p0", first.prompt);
  ASSERT_EQ(prompt.size(), 6U);
  EXPECT_EQ(known("p0"), Names(prompt.begin(), prompt.end()));
  std::vector<TokenId> whole = first.prompt;
  const auto output = cluster_.answer(first).output();
  whole.insert(whole.end(), output.begin(), output.end());
  const auto chain = names_of("d0", whole);
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
    EXPECT_TRUE(known("d0").contains(chain[i])) << i;
  }
  // Eight blocks more need two of the first prompt's, the last ones.
  ask(make_request(2, 120, 1, 2));
  ASSERT_TRUE(hears_all());
  EXPECT_EQ(std::ranges::count_if(prompt, [&](auto name) { return known("p0").contains(name); }),
            4);
  EXPECT_TRUE(known("p0").contains(prompt[3]));
  EXPECT_FALSE(known("p0").contains(prompt[4]));
  EXPECT_EQ(cluster_.node("p0").metric("baton_prefix_evicted_blocks_total"), 2);
  EXPECT_EQ(cluster_.node("p0").metric("baton_prefix_idle_at_eviction_seconds_count"), 2);
}

TEST_F(NodesKvEvents, NewConnectionGetsTheWholeList) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  ask(make_request(1, 100, 5));
  ASSERT_TRUE(hears_all());
  cluster_.close_gateway("p0");
  ASSERT_TRUE(cluster_.run_until([this] {
    int connections = 0;
    known("p0", &connections);
    return connections == 2;
  }));
  EXPECT_EQ(cluster_.kv_events("p0").back().sequence(), 1U);
  EXPECT_EQ(known("p0"), held("p0"));
  EXPECT_FALSE(held("p0").empty());
}

ClusterConfig no_cache() {
  ClusterConfig config;
  config.kv.prefix_cache = false;
  return config;
}

class NodesWithoutPrefixCache : public NodesFixture {
 protected:
  NodesWithoutPrefixCache() : NodesFixture(no_cache()) {}
};

TEST_F(NodesWithoutPrefixCache, TellNothing) {
  cluster_.add("decode", "d0");
  cluster_.add("prefill", "p0");
  const GenerateRequest request = make_request(1, 100, 5);
  cluster_.start(request, "p0", "d0");
  cluster_.finish(request);
  cluster_.executor().advance(std::chrono::seconds(1));
  EXPECT_TRUE(cluster_.last_beat("p0"));
  EXPECT_TRUE(cluster_.kv_events("p0").empty());
  EXPECT_TRUE(cluster_.kv_events("d0").empty());
}

}  // namespace
}  // namespace baton::testing
