// The tracker's part in routing: what nodes announce and what was just sent decide where the next
// request goes; what it books and learns.
#include <gtest/gtest.h>

#include "tests/unit/gateway/tracker_fixture.h"

namespace baton::gateway {
namespace {

class TrackerRoutingTest : public TrackerTest {
 protected:
  GenerateRequest long_request(std::uint64_t id, TokenId first_token) {
    GenerateRequest made = request(id, 4);
    made.prompt.assign(640, first_token);
    return made;
  }
  Node& node(const std::string& name) { return *membership->find(membership->handle_of(name)); }
  void announce(const std::string& name, const GenerateRequest& held, std::uint64_t sequence = 1) {
    PromptChains chains;
    wire::KvEvents events;
    events.set_sequence(sequence);
    events.set_reset(sequence == 1);
    for (const std::uint64_t hash :
         chain_of(chains, held.prompt, node(name).view(executor.now()).block_tokens).hashes) {
      events.add_stored(hash);
    }
    tracker->on_kv_events(node(name), events);
  }
};

TEST_F(TrackerRoutingTest, GoesWhereItsPromptIsAnnounced) {
  start();
  for (const char* name : {"d0", "d1", "p0", "p1"}) {
    add(name);
  }
  announce("p0", long_request(0, 'a'));
  announce("p1", long_request(0, 'b'));
  announce("d0", long_request(0, 'b'));
  announce("d1", long_request(0, 'a'));
  for (std::uint64_t id = 1; id <= 40; ++id) {
    const auto sink = submit(long_request(id, id % 2 == 0 ? 'a' : 'b'));
    pass(50);
    ASSERT_TRUE(sink->end);
    EXPECT_EQ(sink->end->figures.prefill_node, id % 2 == 0 ? "p0" : "p1");
    EXPECT_EQ(sink->end->figures.decode_node, id % 2 == 0 ? "d1" : "d0");
  }
  expect_quiet();
}

TEST_F(TrackerRoutingTest, OneBeginningGoesOneWayBeforeAnythingIsAnnounced) {
  start();
  NodeScript slow;
  slow.prefill_delay = milliseconds(500);
  add("d0");
  add("p0", slow);
  add("p1", slow);
  for (std::uint64_t id = 1; id <= 6; ++id) {
    submit(long_request(id, 'a'));
  }
  pass(10);
  const std::uint32_t first = node("p0").credits_used;
  EXPECT_TRUE(first == 0 || first == 6) << first;
  // The first computes the prompt, the others its last token alone.
  EXPECT_EQ(node("p0").tokens_given + node("p1").tokens_given, 640U + 5U);
  pass(2'000);
  expect_quiet();
}

TEST_F(TrackerRoutingTest, NothingIsExpectedOfWhatEndedLongAgo) {
  start();
  add("d0");
  NodeScript slow;
  slow.prefill_delay = milliseconds(50);
  add("p0", slow);
  submit(long_request(1, 'a'));
  submit(long_request(2, 'a'));
  pass(1);
  EXPECT_EQ(node("p0").tokens_given, 640U + 1U) << "the second finds the first one's blocks";
  pass(3'000);
  EXPECT_EQ(node("p0").tokens_given, 0U);
  submit(long_request(3, 'a'));
  pass(1);
  EXPECT_EQ(node("p0").tokens_given, 640U) << "they were never announced";
  pass(3'000);
  expect_quiet();
}

TEST_F(TrackerRoutingTest, ANodeThatComesBackHoldsNothing) {
  start();
  add("d0");
  add("p0");
  announce("p0", long_request(0, 'a'));
  EXPECT_EQ(tracker->routing().announced(node("p0").handle), 20U);
  cluster->remove("p0");
  pass(1'000);
  NodeScript slow;
  slow.prefill_delay = milliseconds(50);
  add("p0", slow);
  EXPECT_EQ(tracker->routing().announced(node("p0").handle), 0U);
  const auto sink = submit(long_request(1, 'a'));
  pass(1);
  EXPECT_EQ(node("p0").tokens_given, 640U);
  pass(100);
  EXPECT_TRUE(sink->end);
}

TEST_F(TrackerRoutingTest, ASessionStaysOnItsNodes) {
  start();
  for (const char* name : {"d0", "d1", "d2", "p0", "p1", "p2"}) {
    add(name);
  }
  std::string prefill;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    auto sink = std::make_shared<RecordingSink>();
    // Nothing in common but the session.
    tracker->submit({.request = long_request(id, static_cast<TokenId>(id)),
                     .received = executor.now(),
                     .sink = sink,
                     .chains = {},
                     .affinity = 77});
    pass(50);
    ASSERT_TRUE(sink->end);
    prefill = prefill.empty() ? sink->end->figures.prefill_node : prefill;
    EXPECT_EQ(sink->end->figures.prefill_node, prefill);
  }
}

TEST_F(TrackerRoutingTest, ThePolicyIsTheOptions) {
  TrackerOptions options;
  options.routing.policy = RoutePolicy::LeastLoad;
  start(options);
  for (const char* name : {"d0", "p0", "p1"}) {
    add(name);
  }
  announce("p1", long_request(0, 'a'));
  const auto sink = submit(long_request(1, 'a'));
  pass(100);
  EXPECT_EQ(sink->end->figures.prefill_node, "p0") << "caches count for nothing";
}

}  // namespace
}  // namespace baton::gateway
