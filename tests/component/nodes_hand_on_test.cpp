// A decode node hands a request with its grant on to the prefill node: the gateway sends one
// message and hears of it again by tokens, or by one error event. Whatever happens on the way,
// every grant ends and every block is free or cached again.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/convert.h"
#include "tests/component/nodes_fixture.h"

namespace baton::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class NodesHandOn : public NodesFixture {
 protected:
  explicit NodesHandOn(ClusterConfig config = small_chunks()) : NodesFixture(std::move(config)) {
    cluster_.add("decode", "d0");
    cluster_.add("prefill", "p0");
  }

  decode_node::DecodeNode& decode() { return cluster_.node("d0").decode(); }
  prefill_node::PrefillNode& prefill() { return cluster_.node("p0").prefill(); }

  // The first request of a pair: the gateway gets the grant, and the prefill node dials.
  void link(const std::string& node = "p0") {
    const GenerateRequest first = make_request(next_id_++, 40, 3);
    cluster_.start(first, node, "d0");
    cluster_.finish(first);
    expect_same(first);
    cluster_.settle();
  }

  // What is handed on takes so long.
  void delay_handed(Duration delay) {
    cluster_.set_control_hook(
        [delay](const std::string& from, const std::string&, const wire::Frame& frame) {
          FrameFate fate;
          if (from == "d0" && frame.has_prefill()) {
            fate.delay = delay;
          }
          return fate;
        });
  }

  bool run_until_handed(std::size_t count) {
    return cluster_.run_until([&] { return cluster_.num_handed() >= count; });
  }

  // A request that the decode node has handed on and that arrives after `delay`.
  GenerateRequest hand_on_in(Duration delay) {
    link();
    delay_handed(delay);
    const GenerateRequest request = make_request(1, 90, 6);
    cluster_.start(request, "p0", "d0");
    EXPECT_TRUE(run_until_handed(1));
    return request;
  }

  void expect_all_over() {
    cluster_.settle();
    EXPECT_EQ(decode().grants().num_open(), 0U);
    EXPECT_EQ(decode().scheduler().num_running(), 0U);
    EXPECT_EQ(prefill().scheduler().num_jobs(), 0U);
    EXPECT_TRUE(cluster_.all_clean());
  }

  std::uint64_t next_id_ = 100;
};

TEST_F(NodesHandOn, OnlyTheFirstRequestOfAPairAsksTheGateway) {
  link();
  EXPECT_EQ(cluster_.num_granted(), 1U);
  EXPECT_EQ(cluster_.num_handed(), 0U);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    const GenerateRequest request = make_request(id, 50 + id, 5, id);
    cluster_.start(request, "p0", "d0");
    cluster_.finish(request);
    expect_same(request);
  }
  EXPECT_EQ(cluster_.num_granted(), 1U);
  EXPECT_EQ(cluster_.num_handed(), 3U);
  // Another node has no connection yet, and neither has a new life of this one.
  cluster_.add("prefill", "p1");
  link("p1");
  EXPECT_EQ(cluster_.num_granted(), 2U);
  cluster_.kill("p0");
  cluster_.add("prefill", "p0");
  link();
  EXPECT_EQ(cluster_.num_granted(), 3U);
  EXPECT_EQ(cluster_.num_handed(), 3U);
  expect_all_over();
}

TEST_F(NodesHandOn, AnotherLifeOfTheNodeIsNotMeant) {
  link();
  wire::Frame frame;
  const GenerateRequest request = make_request(1, 40, 4);
  *frame.mutable_reserve()->mutable_request() = to_wire(request);
  frame.mutable_reserve()->set_prefill_node("p0");
  frame.mutable_reserve()->set_prefill_incarnation(cluster_.hello("p0").incarnation() + 1);
  cluster_.send("d0", std::move(frame));
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.num_granted() == 2; }));
  EXPECT_EQ(cluster_.num_handed(), 0U);
  cluster_.cancel(request);
  expect_all_over();
}

TEST_F(NodesHandOn, TheDecodeNodeRefusesByOneEvent) {
  link();
  GenerateRequest wrong = make_request(1, 40, 4);
  wrong.model = "another";
  cluster_.start(wrong, "p0", "d0");
  const Answer& answer = cluster_.finish(wrong);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::NotFound);
  EXPECT_TRUE(answer.refused);
  EXPECT_EQ(cluster_.num_handed(), 0U);
  expect_all_over();
}

// ---- refused by the prefill node

class NodesHandOnOneCredit : public NodesHandOn {
 protected:
  NodesHandOnOneCredit()
      : NodesHandOn([] {
          ClusterConfig config = small_chunks();
          config.prefill.credits = 1;
          return config;
        }()) {}
};

TEST_F(NodesHandOnOneCredit, ThePrefillNodeRefusesByOneEvent) {
  link();
  const GenerateRequest first = make_request(1, 200, 4, 1);
  const GenerateRequest second = make_request(2, 200, 4, 2);
  cluster_.start(first, "p0", "d0");
  cluster_.start(second, "p0", "d0");
  const Answer& answer = cluster_.finish(second);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::Busy);
  EXPECT_TRUE(answer.refused);
  EXPECT_EQ(cluster_.num_handed(), 2U);
  EXPECT_GT(cluster_.node("p0").metric("baton_prefill_busy_total"), 0);
  cluster_.cancel(second);  // as gateways do: its grant is open yet
  cluster_.finish(first);
  expect_same(first);
  expect_all_over();
}

TEST_F(NodesHandOn, ADrainingPrefillNodeRefuses) {
  link();
  drain("p0", seconds(10));
  const GenerateRequest request = make_request(1, 40, 4);
  cluster_.start(request, "p0", "d0");
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::Draining);
  EXPECT_TRUE(answer.refused);
  cluster_.cancel(request);
  expect_all_over();
}

// ---- what comes between

TEST_F(NodesHandOn, ACancelThatOvertakesTheRequestEndsIt) {
  const GenerateRequest request = hand_on_in(milliseconds(5));
  const std::size_t before = steps("p0");
  cluster_.cancel(request);
  cluster_.executor().run_until_idle();
  ASSERT_EQ(prefill().scheduler().num_jobs(), 0U) << "the request is on its way yet";
  EXPECT_EQ(decode().grants().num_open(), 0U);
  cluster_.executor().advance(milliseconds(20));
  EXPECT_LE(steps("p0") - before, 1U) << "the Abort comes right behind the request";
  EXPECT_EQ(cluster_.answer(request).tokens.size(), 0U);
  expect_all_over();
}

TEST_F(NodesHandOn, AGatewayThatIsGoneEndsWhatIsOnItsWay) {
  const GenerateRequest request = hand_on_in(milliseconds(5));
  const std::size_t before = steps("p0");
  cluster_.close_gateway("d0");
  cluster_.forget(request);
  cluster_.executor().advance(milliseconds(20));
  EXPECT_LE(steps("p0") - before, 1U);
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.channel("d0") != nullptr; }));
  expect_all_over();
}

// It knows no connection of that gateway: the decode node hears so at once, and tells the gateway.
TEST_F(NodesHandOn, ARequestOfAnUnknownGatewayGoesBack) {
  const GenerateRequest request = hand_on_in(milliseconds(5));
  const std::size_t before = steps("p0");
  cluster_.close_gateway("p0");  // it dials again, but not within these 5 ms
  const TimePoint begun = cluster_.executor().now();
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerDead);
  EXPECT_FALSE(answer.refused) << "the decode node had begun";
  EXPECT_LT(cluster_.executor().now() - begun, seconds(1));
  EXPECT_EQ(steps("p0"), before);
  ASSERT_TRUE(cluster_.run_until([&] { return cluster_.channel("p0") != nullptr; }));
  expect_all_over();
  link();
}

TEST_F(NodesHandOn, AConnectionLostBetweenEndsTheGrantAtOnce) {
  const GenerateRequest request = hand_on_in(seconds(20));
  ASSERT_TRUE(cluster_.fabric().cut("d0", "p0"));
  const TimePoint begun = cluster_.executor().now();
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerDead);
  EXPECT_LT(cluster_.executor().now() - begun, seconds(1));
  expect_all_over();
  cluster_.set_control_hook({});
  link();
  EXPECT_EQ(cluster_.num_granted(), 2U) << "there is no connection now";
}

TEST_F(NodesHandOn, AMessageThatIsLostAloneEndsByItsGrant) {
  link();
  cluster_.set_control_hook(
      [](const std::string&, const std::string& to, const wire::Frame& frame) {
        return FrameFate{.drop = to == "p0" && frame.has_prefill()};
      });
  const GenerateRequest request = make_request(1, 90, 6);
  cluster_.start(request, "p0", "d0");
  ASSERT_TRUE(run_until_handed(1));
  cluster_.executor().advance(cluster_.grant(request).ttl + milliseconds(1));
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerStalled)
      << "the prefill node is avoided, not the pair";
  EXPECT_EQ(decode().grants().stats().expired, 1U);
  expect_all_over();
}

// Its heartbeats come, and none says that it works on the request.
TEST_F(NodesHandOn, APrefillNodeThatStaysSilentIsGivenUpLongBeforeTheDeadline) {
  link();
  cluster_.set_control_hook(
      [](const std::string&, const std::string& to, const wire::Frame& frame) {
        return FrameFate{.drop = to == "p0" && frame.has_prefill()};
      });
  const GenerateRequest request = make_request(1, 90, 6);
  cluster_.start(request, "p0", "d0");
  ASSERT_TRUE(run_until_handed(1));
  const ClusterSection cluster;
  cluster_.executor().advance(milliseconds(2'000) + 2 * cluster.dead_after * cluster.heartbeat +
                              milliseconds(1));
  ASSERT_TRUE(cluster_.answer(request).error);
  EXPECT_EQ(cluster_.answer(request).error->code, ErrorCode::PeerStalled);
  cluster_.settle();
}

TEST_F(NodesHandOn, APrefillNodeThatDiesEndsWhatItWasHanded) {
  const GenerateRequest request = hand_on_in(seconds(20));
  cluster_.kill("p0");
  const Answer& answer = cluster_.finish(request);
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::PeerDead);
  cluster_.settle();
  EXPECT_EQ(decode().grants().num_open(), 0U);
}

// ---- a decode node that breaks the rules

class HostileDecode : public NodesHandOn {
 protected:
  HostileDecode() {
    network_of_evil_ = cluster_.fabric().network("evil");
    memory_.resize(layout().block_bytes_all_layers() * 8);
    transport_ = network_.make_transport(
        "evil", {.base = memory_.data(), .layout = layout(), .num_blocks = 8});
    auto listener = network_of_evil_->listen(
        kAddress,
        [this](const wire::Hello&) -> HelloAnswer {
          wire::Welcome welcome;
          welcome.set_node("evil");
          welcome.set_incarnation(kIncarnation);
          welcome.set_ucx_version(cluster_.hello("p0").ucx_version());
          *welcome.mutable_model() = cluster_.hello("p0").model();
          inlet_ = std::move(transport_->open_inlet()).value();
          const auto& address = inlet_->address();
          welcome.set_worker_address(address.data(), address.size());
          return welcome;
        },
        [this](std::unique_ptr<Channel> channel, const wire::Hello&) {
          channel_ = std::move(channel);
          channel_->set_handlers(
              [this](const wire::Frame& frame) {
                if (frame.has_abort()) {
                  aborts_.push_back(frame.abort());
                } else if (frame.has_commit()) {
                  wire::Frame accepted;
                  accepted.mutable_accepted();
                  channel_->answer(frame, std::move(accepted));
                } else if (frame.has_heartbeat()) {
                  wire::Frame beat;
                  beat.mutable_heartbeat()->mutable_load()->set_reactor_ticks(++ticks_);
                  channel_->send(std::move(beat));
                }
              },
              [](const Error&) {});
        });
    EXPECT_TRUE(listener);
    listener_ = std::move(*listener);
    // A first request, by the gateway, brings the prefill node here.
    const GenerateRequest request = make_request(1, 40, 3);
    const KvGrant grant = grant_of(request);
    receiver_ =
        transport_->open_lease(grant.lease, grant.epoch, grant.runs, transfer::DigestMode::Off);
    cluster_.prefill(request, "p0", grant);
    EXPECT_TRUE(cluster_.run_until(
        [this] { return channel_ != nullptr && prefill().scheduler().num_jobs() == 0; }));
    EXPECT_EQ(prefill().links().num_up(), 1U);
  }
  ~HostileDecode() override {
    channel_.reset();
    receiver_.reset();
    transport_->stop();
  }

  const KvLayout& layout() { return cluster_.node("p0").kv().layout(); }

  KvGrant grant_of(const GenerateRequest& request) {
    KvGrant grant;
    grant.node = "evil";
    grant.incarnation = Incarnation{kIncarnation};
    grant.lease = {request.id.value, 77};
    grant.epoch = Epoch{1};
    grant.layout = layout();
    grant.layout_hash = layout().hash();
    grant.control_address = kAddress;
    grant.ttl = seconds(30);
    grant.runs = {{BlockId{0}, layout().blocks_for(request.prompt.size())}};
    return grant;
  }

  wire::Prefill message(const GenerateRequest& request, const KvGrant& grant) {
    wire::Prefill message;
    *message.mutable_request() = to_wire(request);
    *message.mutable_grant() = to_wire(grant);
    message.set_gateway("gateway");
    message.set_gateway_incarnation(1);
    return message;
  }

  void hand_on(wire::Prefill message) {
    wire::Frame frame;
    *frame.mutable_prefill() = std::move(message);
    channel_->send(std::move(frame));
  }

  static constexpr char kAddress[] = "10.0.0.66:6";
  static constexpr std::uint64_t kIncarnation = 4242;
  std::vector<std::byte> memory_;
  std::unique_ptr<Network> network_of_evil_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<transfer::Inlet> inlet_;
  std::unique_ptr<transfer::LeaseReceiver> receiver_;
  std::uint64_t ticks_ = 0;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Channel> channel_;
  std::vector<wire::Abort> aborts_;
};

TEST_F(HostileDecode, WhatIsWrongIsRefusedToTheGatewayThatIsNamed) {
  struct Case {
    const char* what;
    ErrorCode code;
    std::function<void(wire::Prefill&)> spoil;
  };
  const Case cases[] = {
      {"no prompt",
       ErrorCode::ProtocolError,
       [](wire::Prefill& m) { m.mutable_request()->clear_prompt(); }},
      {"no grant", ErrorCode::ProtocolError, [](wire::Prefill& m) { m.clear_grant(); }},
      {"too few blocks",
       ErrorCode::ProtocolError,
       [](wire::Prefill& m) { m.mutable_grant()->mutable_runs(0)->set_count(1); }},
      {"another model",
       ErrorCode::NotFound,
       [](wire::Prefill& m) { m.mutable_request()->set_model("another"); }},
      {"the grant of another node",
       ErrorCode::ProtocolError,
       [this](wire::Prefill& m) {
         m.mutable_grant()->set_control_address(decode().control_address());
       }},
      {"the grant of another life",
       ErrorCode::ProtocolError,
       [](wire::Prefill& m) { m.mutable_grant()->set_incarnation(kIncarnation + 1); }},
  };
  std::uint64_t id = 10;
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.what);
    const GenerateRequest asked = make_request(id++, 40, 3);
    wire::Prefill spoilt = message(asked, grant_of(asked));
    wrong.spoil(spoilt);
    hand_on(std::move(spoilt));
    cluster_.executor().advance(milliseconds(5));
    const Answer& answer = cluster_.answer(asked);
    ASSERT_TRUE(answer.error);
    EXPECT_EQ(answer.error->code, wrong.code) << answer.error->message;
    EXPECT_TRUE(answer.refused);
  }
  EXPECT_TRUE(aborts_.empty());
  EXPECT_EQ(prefill().scheduler().num_jobs(), 0U);
  EXPECT_TRUE(channel_->is_open());
  link();
}

TEST_F(HostileDecode, WhatIsOfNoGatewayGoesBackToIt) {
  const GenerateRequest request = make_request(2, 40, 3);
  for (const auto& [name, incarnation] :
       {std::pair<std::string, std::uint64_t>{"gateway", 2}, {"stranger", 1}, {"", 0}}) {
    aborts_.clear();
    wire::Prefill spoilt = message(request, grant_of(request));
    spoilt.set_gateway(name);
    spoilt.set_gateway_incarnation(incarnation);
    hand_on(std::move(spoilt));
    ASSERT_TRUE(cluster_.run_until([this] { return !aborts_.empty(); })) << name;
    EXPECT_EQ(lease_of(aborts_.front()), grant_of(request).lease);
    EXPECT_TRUE(aborts_.front().tell_gateway());
  }
  aborts_.clear();
  hand_on({});  // nothing at all
  ASSERT_TRUE(cluster_.run_until([this] { return !aborts_.empty(); }));
  EXPECT_EQ(prefill().scheduler().num_jobs(), 0U);
  link();
}

}  // namespace
}  // namespace baton::testing
