// Messages and values: there and back, every bound, and random damage.
#include "common/wire/convert.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "common/base/random.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

GenerateRequest request() {
  GenerateRequest value;
  value.id = RequestId(~0ULL);
  value.attempt = Attempt(3);
  value.model = "tiny";
  value.prompt = {1, 2, 49151};
  value.output = {7};
  value.sampling.temperature = 0.7F;
  value.sampling.top_k = 40;
  value.sampling.seed = 0x0123456789abcdefULL;
  value.sampling.num_logprobs = 5;
  value.sampling.logit_bias = {{.token = 3, .bias = -100.0F}, {.token = 9, .bias = 1.5F}};
  value.grammar = {.kind = Grammar::Kind::Regex, .text = "[a-z]+"};
  value.prompt_logprobs = 0;
  value.choice = 1;
  value.max_tokens = 64;
  value.min_tokens = 2;
  value.stop_tokens = {2};
  value.deadline = std::chrono::milliseconds(1234);
  return value;
}

KvGrant grant() {
  KvGrant value;
  value.node = "d0";
  value.incarnation = Incarnation(9);
  value.lease = {1, 2};
  value.epoch = Epoch(4);
  value.layout = {.layers = 2, .kv_heads = 3, .head_dim = 64, .block_tokens = 16};
  value.layout_hash = value.layout.hash();
  value.control_address = "127.0.0.1:1";
  value.prefix_blocks = 2;
  value.runs = {{BlockId(10), 3}, {BlockId(0), 10}, {BlockId(13), 1}};
  value.ttl = std::chrono::milliseconds(30000);
  return value;
}

TokenEvent event() {
  TokenEvent value;
  value.request = RequestId(5);
  value.attempt = Attempt(1);
  value.index = 4;
  value.tokens = {10, 11};
  value.logprobs = {{10, -0.5F}, {11, -1.5F}};
  value.top_logprobs = {{{10, -0.5F}, {3, -2.0F}}, {}};
  value.prompt_logprobs = {{1, -3.0F}, {2, -4.0F}};
  value.prompt_top_logprobs = {{{5, -0.1F}}, {{6, -0.2F}}};
  value.finish = FinishReason::Length;
  value.figures = RequestFigures{.cached_tokens = 32,
                                 .kv_bytes_moved = 1ULL << 40,
                                 .kv_transport = "tcp",
                                 .transfer_us = 12,
                                 .pulled_tokens = 64,
                                 .drafted_tokens = 9,
                                 .accepted_tokens = 5,
                                 .node = "d0"};
  return value;
}

TEST(Convert, RequestComesBackEqual) {
  const auto message = to_wire(request());
  const auto back = from_wire(message);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_wire(*back).SerializeAsString(), message.SerializeAsString());
  EXPECT_EQ(back->prompt, request().prompt);
  EXPECT_EQ(back->output, request().output);
  EXPECT_EQ(back->sampling.seed, request().sampling.seed);
  EXPECT_EQ(back->sampling.logit_bias, request().sampling.logit_bias);
  EXPECT_EQ(back->grammar, request().grammar);
  EXPECT_EQ(back->prompt_logprobs, 0);
  EXPECT_EQ(back->deadline, request().deadline);
}

TEST(Convert, GrantComesBackEqual) {
  const auto message = to_wire(grant());
  const auto back = from_wire(message);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_wire(*back).SerializeAsString(), message.SerializeAsString());
  EXPECT_EQ(back->runs, grant().runs);
  EXPECT_EQ(back->lease, grant().lease);
  EXPECT_EQ(back->layout, grant().layout);
}

TEST(Convert, EventComesBackEqual) {
  const auto message = to_wire(event());
  const auto back = from_wire(message);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_wire(*back).SerializeAsString(), message.SerializeAsString());
  EXPECT_EQ(back->figures->kv_bytes_moved, 1ULL << 40);
  EXPECT_EQ(back->figures->accepted_tokens, 5U);
}

TEST(Convert, ErrorEventKeepsCodeAndText) {
  TokenEvent value;
  value.finish = FinishReason::Error;
  value.error = Error{ErrorCode::PeerDead, "the prefill node is gone"};
  const auto back = from_wire(to_wire(value));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->error->code, ErrorCode::PeerDead);
  EXPECT_EQ(back->error->message, "the prefill node is gone");
}

TEST(Convert, LayoutComesBackEqual) {
  const KvLayout layout{.layers = 30, .kv_heads = 3, .head_dim = 64};
  EXPECT_EQ(from_wire(to_wire(layout)), layout);
}

TEST(Convert, EveryErrorCodeHasItsOwnName) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(error_code_from(to_string(code)), code);
  }
  EXPECT_EQ(error_code_from("no such"), ErrorCode::Internal);
}

TEST(Convert, EveryErrorCodeIsOnThePageOfTheWire) {
  std::ifstream file("docs/wire.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  for (int i = 0; i <= static_cast<int>(ErrorCode::Internal); ++i) {
    EXPECT_THAT(page, HasSubstr(fmt::format("`{}`", to_string(static_cast<ErrorCode>(i)))));
  }
  const auto* const body = wire::Frame::descriptor()->FindOneofByName("body");
  ASSERT_NE(body, nullptr);
  for (int i = 0; i < body->field_count(); ++i) {
    EXPECT_THAT(page, HasSubstr(fmt::format("`{}`", body->field(i)->message_type()->name())));
  }
}

TEST(Convert, RefusalCarriesErrorAndField) {
  const auto refusal = to_refusal(Error{ErrorCode::Mismatch, "differs"}, "model.id");
  EXPECT_EQ(refusal.code(), "mismatch");
  const auto back = from_refusal(refusal);
  EXPECT_EQ(back.code, ErrorCode::Mismatch);
  EXPECT_EQ(back.message, "model.id: differs");
}

TEST(Convert, WireTextIsAlwaysWholeUtf8) {
  EXPECT_EQ(wire_text("plain"), "plain");
  EXPECT_EQ(wire_text("a\xff"
                      "b"),
            "a?b");
  EXPECT_EQ(wire_text("½…😀"), "½…😀");
  EXPECT_EQ(wire_text("\xed\xa0\x80\xc0\x80"), "?????");
  const auto cut = wire_text("x" + [] {
    std::string text;
    for (int i = 0; i < 2000; ++i) {
      text += "½";
    }
    return text;
  }());
  EXPECT_EQ(cut.size(), WireLimits::kErrorText - 1);
  wire::Refusal refusal;
  refusal.set_message(cut);
  EXPECT_TRUE(wire::Refusal().ParseFromString(refusal.SerializeAsString()));
}

template <class Message>
struct Damage {
  std::string names;  // what the message must say
  std::function<void(Message&)> change;
};

template <class Message>
void expect_refused(const Message& good, const std::vector<Damage<Message>>& damages) {
  ASSERT_TRUE(from_wire(good));
  for (const auto& damage : damages) {
    auto message = good;
    damage.change(message);
    const auto result = from_wire(message);
    ASSERT_FALSE(result) << damage.names;
    EXPECT_EQ(result.error().code, ErrorCode::ProtocolError);
    EXPECT_THAT(result.error().message, HasSubstr(damage.names));
  }
}

TEST(Convert, RequestBoundsAreChecked) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  expect_refused<wire::GenerateRequest>(
      to_wire(request()),
      {{"request.prompt", [](auto& m) { m.clear_prompt(); }},
       {"request.prompt", [](auto& m) { m.add_prompt(-1); }},
       {"request.prompt", [](auto& m) { m.mutable_prompt()->Resize(WireLimits::kTokens + 1, 1); }},
       {"request.output", [](auto& m) { m.set_output(0, -5); }},
       {"request.output", [](auto& m) { m.mutable_output()->Resize(64, 1); }},
       {"request.stop_tokens", [](auto& m) { m.add_stop_tokens(-1); }},
       {"request.stop_tokens",
        [](auto& m) { m.mutable_stop_tokens()->Resize(WireLimits::kStopTokens + 1, 1); }},
       {"request.sampling", [](auto& m) { m.clear_sampling(); }},
       {"temperature", [](auto& m) { m.mutable_sampling()->set_temperature(kNan); }},
       {"top_p", [](auto& m) { m.mutable_sampling()->set_top_p(1.5F); }},
       {"logprobs", [](auto& m) { m.mutable_sampling()->set_num_logprobs(21); }},
       {"logit_bias", [](auto& m) { m.mutable_sampling()->mutable_logit_bias(0)->set_bias(101); }},
       {"logit_bias", [](auto& m) { m.mutable_sampling()->mutable_logit_bias(0)->set_token(-1); }},
       {"request.grammar", [](auto& m) { m.mutable_grammar()->set_kind(6); }},
       {"request.grammar",
        [](auto& m) { m.mutable_grammar()->set_text(std::string(WireLimits::kGrammar + 1, 'a')); }},
       {"request.prompt_logprobs", [](auto& m) { m.set_prompt_logprobs(22); }},
       {"request.choice", [](auto& m) { m.set_choice(WireLimits::kChoices); }},
       {"request.max_tokens", [](auto& m) { m.set_max_tokens(0); }},
       {"request.max_tokens", [](auto& m) { m.set_max_tokens(WireLimits::kTokens + 1); }},
       {"request.min_tokens", [](auto& m) { m.set_min_tokens(65); }},
       {"request.deadline_ms", [](auto& m) { m.set_deadline_ms(0); }},
       {"request.deadline_ms", [](auto& m) { m.set_deadline_ms(~0ULL); }},
       {"request.model", [](auto& m) { m.set_model(std::string(257, 'm')); }}});
}

TEST(Convert, GrantBoundsAreChecked) {
  expect_refused<wire::KvGrant>(
      to_wire(grant()),
      {{"grant.node", [](auto& m) { m.clear_node(); }},
       {"grant.lease", [](auto& m) { m.set_lease_high(0), m.set_lease_low(0); }},
       {"grant.runs: a run is empty", [](auto& m) { m.mutable_runs(1)->set_count(0); }},
       {"grant.runs: a run goes past", [](auto& m) { m.mutable_runs(0)->set_count(~0U); }},
       {"block 12 is in two runs", [](auto& m) { m.mutable_runs(2)->set_first(12); }},
       {"block 0 is in two runs", [](auto& m) { m.mutable_runs(2)->set_first(0); }},
       {"grant.prefix_blocks", [](auto& m) { m.set_prefix_blocks(~0U); }},
       {"grant.layout_hash", [](auto& m) { m.set_layout_hash(77); }},
       {"layout", [](auto& m) { m.mutable_layout()->set_layers(0); }},
       {"grant.ttl_ms", [](auto& m) { m.set_ttl_ms(0); }},
       {"grant.ttl_ms", [](auto& m) { m.set_ttl_ms(~0ULL); }},
       {"grant.control_address", [](auto& m) { m.set_control_address(std::string(257, 'a')); }},
       {"grant.runs", [](auto& m) {
          for (int i = 0; i <= WireLimits::kRuns; ++i) {
            m.add_runs()->set_count(1);
          }
        }}});
}

TEST(Convert, EventBoundsAreChecked) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect_refused<wire::TokenEvent>(
      to_wire(event()),
      {{"event.tokens", [](auto& m) { m.set_tokens(0, -1); }},
       {"event.tokens",
        [](auto& m) { m.mutable_tokens()->Resize(WireLimits::kEventTokens + 1, 1); }},
       {"event.logprobs", [](auto& m) { m.add_logprobs(); }},
       {"event.logprobs", [](auto& m) { m.mutable_logprobs(0)->set_logprob(-kInfinity); }},
       {"event.logprobs", [](auto& m) { m.mutable_logprobs(0)->set_token(-1); }},
       {"event.top_logprobs", [](auto& m) { m.add_top_logprobs(); }},
       {"event.top_logprobs",
        [](auto& m) {
          for (int i = 0; i < 20; ++i) {
            m.mutable_top_logprobs(0)->add_entries();
          }
        }},
       {"event.prompt_top_logprobs", [](auto& m) { m.add_prompt_top_logprobs(); }},
       {"event.finish", [](auto& m) { m.set_finish(5); }},
       {"event.finish", [](auto& m) { m.set_finish(256); }},
       {"event.choice", [](auto& m) { m.set_choice(~0U); }},
       {"event.index", [](auto& m) { m.set_index(~0U); }},
       {"figures.node", [](auto& m) { m.mutable_figures()->set_node(std::string(257, 'n')); }},
       {"figures.kv_transport",
        [](auto& m) { m.mutable_figures()->set_kv_transport(std::string(257, 'n')); }}});
  wire::TokenEvent empty;
  EXPECT_FALSE(from_wire(empty)) << "an event must say something";
}

TEST(Convert, LayoutBoundsAreChecked) {
  expect_refused<wire::KvLayout>(to_wire(KvLayout{.layers = 30, .kv_heads = 3, .head_dim = 64}),
                                 {{"layout.dtype", [](auto& m) { m.set_dtype(257); }},
                                  {"layout", [](auto& m) { m.set_dtype(6); }},
                                  {"layout.order", [](auto& m) { m.set_order(257); }},
                                  {"layout", [](auto& m) { m.set_layers(0); }},
                                  {"layout", [](auto& m) { m.set_head_dim(~0U); }},
                                  {"layout", [](auto& m) { m.set_block_tokens(33); }}});
}

// Whatever parses as a message must convert or be refused, never crash or hang.
template <class Message>
void fuzz(const Message& good) {
  const google::protobuf::LogSilencer quiet;
  const auto bytes = good.SerializeAsString();
  int parsed = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    auto random = seeded_random(seed);
    auto damaged = bytes;
    for (std::uint64_t i = 0; i < 1 + random() % 4; ++i) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (random() % 8 == 0) {
      damaged.resize(random() % damaged.size());
    }
    Message message;
    if (!message.ParseFromString(damaged)) {
      continue;
    }
    ++parsed;
    if (const auto value = from_wire(message)) {
      EXPECT_TRUE(from_wire(to_wire(*value))) << "seed " << seed;
    } else {
      EXPECT_EQ(value.error().code, ErrorCode::ProtocolError);
    }
  }
  EXPECT_GT(parsed, 100) << "the damage must leave something to convert";
}

TEST(Convert, DamagedRequestsNeverCrash) {
  fuzz(to_wire(request()));
}
TEST(Convert, DamagedGrantsNeverCrash) {
  fuzz(to_wire(grant()));
}
TEST(Convert, DamagedEventsNeverCrash) {
  fuzz(to_wire(event()));
}
TEST(Convert, DamagedLayoutsNeverCrash) {
  fuzz(to_wire(KvLayout{.layers = 30, .kv_heads = 3, .head_dim = 64}));
}

}  // namespace
}  // namespace baton
