// Trace contexts, and the export of spans to a collector that answers, is slow, or is not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <future>
#include <mutex>
#include <thread>

#include "common/obs/span_exporter.h"
#include "common/types/trace_context.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ReadsAndWritesTheHeader) {
  const auto context = TraceContext::parse(kParent);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(context->span, 0xb7ad6b7169203331U);
  EXPECT_TRUE(context->is_sampled);
  EXPECT_EQ(context->to_traceparent(), kParent);
  const std::string unsampled = std::string(kParent).replace(53, 2, "00");
  EXPECT_FALSE(TraceContext::parse(unsampled)->is_sampled);
  EXPECT_TRUE(TraceContext::parse(std::string(kParent).replace(0, 2, "01") + "-more"));
}

TEST(TraceContext, WhatIsNoneIsNone) {
  const std::string good = kParent;
  for (const std::string& bad : {std::string(),
                                 good.substr(1),
                                 good + "-more",
                                 std::string(good).replace(0, 2, "ff"),
                                 std::string(good).replace(0, 2, "0x"),
                                 std::string(good).replace(3, 32, std::string(32, '0')),
                                 std::string(good).replace(36, 16, std::string(16, '0')),
                                 std::string(good).replace(3, 1, "A"),
                                 std::string(good).replace(2, 1, "_")}) {
    EXPECT_FALSE(TraceContext::parse(bad)) << bad;
  }
}

Span span(const std::string& name, const std::string& instance) {
  Span out;
  out.trace_id = "0af7651916cd43dd8448eb211c80319c";
  out.id = 0xab;
  out.parent = 0xcd;
  out.name = name;
  out.start_unix_ns = 1'700'000'000'000'000'001;
  out.end_unix_ns = 1'700'000'000'000'000'002;
  out.service = "baton";
  out.instance = instance;
  return out;
}

TEST(SpanExporter, WritesTheJsonOfTheProtocol) {
  Span first = span("a\"b", "p0");
  first.attributes = {{"tokens", std::int64_t{-3}}, {"node", "n\\0"}};
  first.error = "failed";
  EXPECT_EQ(
      to_otlp_json({first, span("c", "p1"), span("d", "p0")}),
      R"({"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":)"
      R"({"stringValue":"baton"}},{"key":"service.instance.id","value":{"stringValue":"p0"}}]},)"
      R"("scopeSpans":[{"scope":{"name":"baton"},"spans":[{"traceId":)"
      R"("0af7651916cd43dd8448eb211c80319c","spanId":"00000000000000ab","parentSpanId":)"
      R"("00000000000000cd","name":"a\"b","kind":1,"startTimeUnixNano":"1700000000000000001",)"
      R"("endTimeUnixNano":"1700000000000000002","attributes":[{"key":"tokens","value":)"
      R"({"intValue":"-3"}},{"key":"node","value":{"stringValue":"n\\0"}}],"status":{"code":2,)"
      R"("message":"failed"}},{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":)"
      R"("00000000000000ab","parentSpanId":"00000000000000cd","name":"d","kind":1,)"
      R"("startTimeUnixNano":"1700000000000000001","endTimeUnixNano":"1700000000000000002",)"
      R"("attributes":[]}]}]},{"resource":{"attributes":[{"key":"service.name","value":)"
      R"({"stringValue":"baton"}},{"key":"service.instance.id","value":{"stringValue":"p1"}}]},)"
      R"("scopeSpans":[{"scope":{"name":"baton"},"spans":[{"traceId":)"
      R"("0af7651916cd43dd8448eb211c80319c","spanId":"00000000000000ab","parentSpanId":)"
      R"("00000000000000cd","name":"c","kind":1,"startTimeUnixNano":"1700000000000000001",)"
      R"("endTimeUnixNano":"1700000000000000002","attributes":[]}]}]}]})");
}

// Keeps what it is sent; may hold the first answer back.
class Collector {
 public:
  Collector() {
    server_.Post("/v1/traces", [this](const httplib::Request& request, httplib::Response&) {
      bool is_first = false;
      {
        const std::lock_guard lock(mutex_);
        is_first = bodies_.empty();
        bodies_.push_back(request.body);
      }
      if (is_first) {
        arrived_.set_value();
        gate_.get_future().wait();
      }
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::jthread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) {
      std::this_thread::yield();
    }
  }
  ~Collector() { server_.stop(); }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  void wait_for_first() { arrived_.get_future().wait(); }
  void open() { gate_.set_value(); }
  std::vector<std::string> bodies() {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> bodies_;
  std::promise<void> arrived_;
  std::promise<void> gate_;
  std::jthread thread_;
};

TEST(SpanExporter, AFullQueueDropsAndTheRestArrives) {
  Collector collector;
  Metrics metrics;
  const Logger log = Logger::silent();
  auto exporter =
      SpanExporter::start({.endpoint = collector.endpoint(), .queue_limit = 2}, metrics, log);
  ASSERT_TRUE(exporter) << exporter.error().message;
  (*exporter)->add({span("first", "p")});
  collector.wait_for_first();  // and it holds the thread
  (*exporter)->add({span("second", "p")});
  (*exporter)->add({span("many", "p"), span("more", "p")});  // does not fit: none of them
  (*exporter)->add({span("third", "p")});
  collector.open();
  (*exporter)->stop();
  ASSERT_EQ(collector.bodies().size(), 2U);
  EXPECT_THAT(collector.bodies()[1], HasSubstr(R"("name":"second")"));
  EXPECT_THAT(collector.bodies()[1], HasSubstr(R"("name":"third")"));
  EXPECT_THAT(collector.bodies()[1], Not(HasSubstr("many")));
  const std::string text = metrics.to_text();
  EXPECT_THAT(text, HasSubstr(R"(baton_trace_spans_total{how="exported"} 3)"));
  EXPECT_THAT(text, HasSubstr(R"(baton_trace_spans_total{how="dropped"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(baton_trace_spans_total{how="failed"} 0)"));
}

TEST(SpanExporter, WithoutACollectorSpansAreCountedAndItEnds) {
  Metrics metrics;
  const Logger log = Logger::silent();
  auto exporter = SpanExporter::start({.endpoint = "http://127.0.0.1:1/v1/traces"}, metrics, log);
  ASSERT_TRUE(exporter);
  (*exporter)->add({span("lost", "p")});
  (*exporter)->stop();
  EXPECT_THAT(metrics.to_text(), HasSubstr(R"(baton_trace_spans_total{how="failed"} 1)"));
}

TEST(SpanExporter, RefusesWhatIsNoAddress) {
  Metrics metrics;
  const Logger log = Logger::silent();
  for (const char* endpoint : {"collector:4318", "grpc://c:4317", "http://"}) {
    EXPECT_FALSE(SpanExporter::start({.endpoint = endpoint}, metrics, log)) << endpoint;
  }
}

}  // namespace
}  // namespace baton
