// Which requests are traced, and what their spans say.
#include "gateway/requests/request_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace baton::gateway {
namespace {

using std::chrono::microseconds;
using ::testing::ElementsAre;

constexpr const char* kSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr const char* kUnsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

TEST(TraceChoice, AClientsContextGoesOnEvenWithoutACollector) {
  const TraceChoice choice;
  const RequestTrace trace = choice.begin(kSampled, seeded_random(1));
  EXPECT_EQ(trace.context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace.parent, 0xb7ad6b7169203331U);
  EXPECT_NE(trace.context.span, trace.parent);
  EXPECT_FALSE(trace.is_exported);
  EXPECT_FALSE(trace.traceparent().empty());
  EXPECT_TRUE(choice.begin("", seeded_random(1)).traceparent().empty());
  EXPECT_TRUE(choice.begin("nonsense", seeded_random(1)).traceparent().empty());
}

TEST(TraceChoice, TheClientSaysWhetherItIsSampledElseTheShare) {
  TraceChoice choice{.has_collector = true, .sample_percent = 100};
  const RandomSource random = seeded_random(2);
  EXPECT_TRUE(choice.begin(kSampled, random).is_exported);
  EXPECT_FALSE(choice.begin(kUnsampled, random).is_exported);
  EXPECT_TRUE(choice.begin("", random).is_exported);
  choice.sample_percent = 0;
  EXPECT_TRUE(choice.begin(kSampled, random).is_exported);
  EXPECT_FALSE(choice.begin("", random).is_exported);
}

EndedRequest ended() {
  EndedRequest request;
  request.id = RequestId(7);
  request.model = "m";
  request.tier = "default";
  request.how = "finished";
  request.ended_unix_ms = 1'700'000'000'000;
  request.total_us = 10'000;
  request.ttft_us = 4'000;
  request.prompt_tokens = 5;
  request.output_tokens = 3;
  request.figures.prefill_node = "p0";
  request.figures.decode_node = "d0";
  request.figures.attempts = 1;
  request.figures.queue = microseconds(1'000);
  request.figures.prefill = microseconds(2'500);
  request.figures.transfer = microseconds(600);
  request.figures.kv_bytes_moved = 1234;
  request.trace = TraceChoice{.has_collector = true}.begin(kSampled, seeded_random(3));
  return request;
}

std::vector<std::string> names(const std::vector<Span>& spans) {
  std::vector<std::string> out;
  for (const Span& span : spans) {
    out.push_back(span.name);
  }
  return out;
}

TEST(RequestSpans, PhasesLieInsideTheRequestOneAfterTheOther) {
  const EndedRequest request = ended();
  const std::vector<Span> spans = spans_of(request);
  ASSERT_THAT(names(spans), ElementsAre("gateway", "queue", "prefill", "transfer", "decode"));
  EXPECT_EQ(spans[0].parent, request.trace.parent);
  EXPECT_EQ(spans[0].id, request.trace.context.span);
  EXPECT_EQ(spans[0].end_unix_ns - spans[0].start_unix_ns, 10'000'000);
  EXPECT_EQ(spans[0].end_unix_ns, 1'700'000'000'000'000'000);
  std::vector<std::uint64_t> ids;
  for (const Span& span : spans) {
    EXPECT_EQ(span.trace_id, "0af7651916cd43dd8448eb211c80319c");
    EXPECT_GE(span.start_unix_ns, spans[0].start_unix_ns);
    EXPECT_LE(span.end_unix_ns, spans[0].end_unix_ns);
    EXPECT_LE(span.start_unix_ns, span.end_unix_ns);
    EXPECT_TRUE(&span == spans.data() || span.parent == spans[0].id);
    ids.push_back(span.id);
  }
  std::ranges::sort(ids);
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end()) << "two spans have one id";
  EXPECT_EQ(spans[2].start_unix_ns - spans[0].start_unix_ns, 1'000'000);
  EXPECT_EQ(spans[3].start_unix_ns, spans[2].end_unix_ns);
  EXPECT_EQ(spans[2].instance, "p0");
  EXPECT_EQ(spans[4].instance, "d0");
  EXPECT_EQ(spans[4].service, "baton-decode");
}

TEST(RequestSpans, OneThatNoNodeTookHasItsQueueAlone) {
  EndedRequest request = ended();
  request.how = "failed";
  request.figures = {};
  request.ttft_us = 0;
  const std::vector<Span> spans = spans_of(request);
  ASSERT_THAT(names(spans), ElementsAre("gateway", "queue"));
  EXPECT_EQ(spans[0].error, "failed");
  EXPECT_EQ(spans[1].end_unix_ns, spans[0].end_unix_ns);
}

TEST(RequestSpans, APromptOnTheDecodeNodeIsNotSent) {
  EndedRequest request = ended();
  request.figures.prefill_node = "d0";
  request.figures.kv_bytes_moved = 0;
  const std::vector<Span> spans = spans_of(request);
  ASSERT_THAT(names(spans), ElementsAre("gateway", "queue", "prefill", "decode"));
  EXPECT_EQ(spans[2].service, "baton-decode");
}

}  // namespace
}  // namespace baton::gateway
