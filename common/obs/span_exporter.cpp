#include "common/obs/span_exporter.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <optional>
#include <string_view>

#include "common/exec/thread.h"
#include "common/json/json_escape.h"

namespace baton {
namespace {

constexpr std::size_t kBatch = 512;            // spans of one export, about
constexpr std::time_t kCollectorPatience = 3;  // seconds, for connecting and for the answer

void append_attribute(std::string& out, std::string_view key, const Span::Value& value) {
  out += "{\"key\":";
  append_json_string(out, key);
  out += ",\"value\":{";
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    fmt::format_to(std::back_inserter(out), "\"intValue\":\"{}\"", *number);
  } else {
    out += "\"stringValue\":";
    append_json_string(out, std::get<std::string>(value));
  }
  out += "}}";
}

void append_span(std::string& out, const Span& span) {
  fmt::format_to(
      std::back_inserter(out), R"({{"traceId":"{}","spanId":"{:016x}",)", span.trace_id, span.id);
  if (span.parent != 0) {
    fmt::format_to(std::back_inserter(out), R"("parentSpanId":"{:016x}",)", span.parent);
  }
  out += "\"name\":";
  append_json_string(out, span.name);
  fmt::format_to(std::back_inserter(out),
                 R"(,"kind":{},"startTimeUnixNano":"{}","endTimeUnixNano":"{}","attributes":[)",
                 static_cast<unsigned>(span.kind),
                 span.start_unix_ns,
                 span.end_unix_ns);
  for (const auto& [key, value] : span.attributes) {
    out += out.back() == '[' ? "" : ",";
    append_attribute(out, key, value);
  }
  out += "]";
  if (!span.error.empty()) {
    out += ",\"status\":{\"code\":2,\"message\":";
    append_json_string(out, span.error);
    out += "}";
  }
  out += "}";
}

struct Address {
  std::string server;  // http://host:port
  std::string path;
};

std::optional<Address> parse_endpoint(const std::string& text) {
  const std::size_t scheme = text.starts_with("http://") ? 7 : text.starts_with("https://") ? 8 : 0;
  const std::size_t slash = std::min(text.find('/', scheme), text.size());
  if (scheme == 0 || slash == scheme) {
    return std::nullopt;
  }
  return Address{text.substr(0, slash), slash < text.size() ? text.substr(slash) : "/v1/traces"};
}

}  // namespace

std::string to_otlp_json(const std::vector<Span>& spans) {
  // A resource holds its spans: in the order of their first.
  std::vector<const Span*> resources;
  for (const Span& span : spans) {
    if (std::ranges::none_of(resources, [&](const Span* known) {
          return known->service == span.service && known->instance == span.instance;
        })) {
      resources.push_back(&span);
    }
  }
  std::string out = "{\"resourceSpans\":[";
  for (const Span* resource : resources) {
    out += out.back() == '[' ? "" : ",";
    out += "{\"resource\":{\"attributes\":[";
    append_attribute(out, "service.name", resource->service);
    out += ",";
    append_attribute(out, "service.instance.id", resource->instance);
    out += R"(]},"scopeSpans":[{"scope":{"name":"baton"},"spans":[)";
    for (const Span& span : spans) {
      if (span.service == resource->service && span.instance == resource->instance) {
        out += out.back() == '[' ? "" : ",";
        append_span(out, span);
      }
    }
    out += "]}]}";
  }
  return out + "]}";
}

struct SpanExporter::Impl {
  Impl(SpanExporterOptions given, Address where, Metrics& metrics, const Logger& logger)
      : options(std::move(given)),
        address(std::move(where)),
        log(logger),
        exported(counter(metrics, "exported")),
        dropped(counter(metrics, "dropped")),
        failed(counter(metrics, "failed")) {}

  static Counter counter(Metrics& metrics, const char* how) {
    return metrics.counter("baton_trace_spans_total",
                           "Spans for the collector: exported, dropped since the queue was full, "
                           "failed to be delivered",
                           {{"how", how}});
  }

  void run() {
    httplib::Client client(address.server);
    client.set_connection_timeout(kCollectorPatience);
    client.set_read_timeout(kCollectorPatience);
    client.set_write_timeout(kCollectorPatience);
    bool was_good = true;
    while (true) {
      std::vector<Span> batch;
      bool ends = false;
      {
        std::unique_lock lock(mutex);
        news.wait(lock, [this] { return !queue.empty() || stopping; });
        const std::size_t count = std::min(queue.size(), kBatch);
        const auto end = queue.begin() + static_cast<std::ptrdiff_t>(count);
        batch.assign(std::move_iterator(queue.begin()), std::move_iterator(end));
        queue.erase(queue.begin(), end);
        ends = stopping;
      }
      const bool is_good = batch.empty() || send(client, batch);
      if (is_good != was_good) {
        log.info("the collector of traces at {} {}",
                 address.server,
                 is_good ? "answers again" : "does not take spans; they are counted as failed");
        was_good = is_good;
      }
      const std::lock_guard lock(mutex);
      if (ends && (queue.empty() || !is_good)) {
        failed.add(static_cast<double>(queue.size()));
        return;
      }
    }
  }

  bool send(httplib::Client& client, const std::vector<Span>& batch) const {
    const httplib::Result answer =
        client.Post(address.path, to_otlp_json(batch), "application/json");
    const bool taken = answer && answer->status >= 200 && answer->status < 300;
    (taken ? exported : failed).add(static_cast<double>(batch.size()));
    return taken;
  }

  const SpanExporterOptions options;
  const Address address;
  const Logger& log;
  const Counter exported, dropped, failed;
  std::mutex mutex;  // guards queue and stopping
  std::condition_variable news;
  std::vector<Span> queue;
  bool stopping = false;
  NamedThread thread;
};

SpanExporter::SpanExporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SpanExporter::~SpanExporter() {
  stop();
}

Result<std::unique_ptr<SpanExporter>> SpanExporter::start(SpanExporterOptions options,
                                                          Metrics& metrics,
                                                          const Logger& log) {
  auto address = parse_endpoint(options.endpoint);
  if (!address) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("'{}' is no http://host:port/v1/traces", options.endpoint));
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(*address), metrics, log);
  impl->thread =
      NamedThread("traces", [self = impl.get()](const std::stop_token&) { self->run(); });
  return std::unique_ptr<SpanExporter>(new SpanExporter(std::move(impl)));
}

void SpanExporter::add(std::vector<Span> spans) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->stopping || impl_->queue.size() + spans.size() > impl_->options.queue_limit) {
      impl_->dropped.add(static_cast<double>(spans.size()));
      return;
    }
    impl_->queue.insert(
        impl_->queue.end(), std::move_iterator(spans.begin()), std::move_iterator(spans.end()));
  }
  impl_->news.notify_one();
}

void SpanExporter::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->news.notify_one();
  impl_->thread.join();
}

}  // namespace baton
