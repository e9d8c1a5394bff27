// Sends spans to a collector by OTLP over HTTP, as JSON (https://opentelemetry.io/docs/specs/otlp/;
// trace.proto's JSON mapping). A thread of its own sends what `add` puts into a bounded queue; a
// full queue drops, and a collector that is slow or gone costs spans, never requests.
//
// Owner: the composition root. Thread: `add` from any; it takes a lock for as long as a move takes.
// Failure: `start` refuses a bad address; what was not delivered is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/error.h"
#include "common/obs/log.h"
#include "common/obs/metrics.h"

namespace baton {

struct Span {
  enum class Kind : std::uint8_t { Internal = 1, Server = 2 };  // as the protocol numbers them
  using Value = std::variant<std::int64_t, std::string>;

  std::string trace_id;  // 32 hexadecimal digits
  std::uint64_t id = 0;
  std::uint64_t parent = 0;  // 0: none
  std::string name;
  Kind kind = Kind::Internal;
  std::int64_t start_unix_ns = 0;
  std::int64_t end_unix_ns = 0;
  std::string service;   // resource: service.name
  std::string instance;  // resource: service.instance.id
  std::vector<std::pair<std::string, Value>> attributes;
  std::string error;  // a word for what failed; empty: nothing did
};

// The body of one export.
std::string to_otlp_json(const std::vector<Span>& spans);

struct SpanExporterOptions {
  std::string endpoint;            // http://host:port/path
  std::size_t queue_limit = 4096;  // spans
};

class SpanExporter {
 public:
  static Result<std::unique_ptr<SpanExporter>> start(SpanExporterOptions options,
                                                     Metrics& metrics,
                                                     const Logger& log);
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;
  ~SpanExporter();

  // All of them or, when the queue is full, none.
  void add(std::vector<Span> spans);
  // Sends what is queued, once, then ends the thread. Idempotent.
  void stop();

 private:
  struct Impl;
  explicit SpanExporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
