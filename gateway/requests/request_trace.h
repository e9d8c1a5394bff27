// A request's place in a distributed trace: whose child it is, its own span, and whether spans of
// it are exported.
//
// Thread: plain values. Failure: a trace context that cannot be read counts as none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/random.h"
#include "common/types/trace_context.h"

namespace baton::gateway {

struct RequestTrace {
  TraceContext context;      // its span is the request's own; it goes on to nodes
  std::uint64_t parent = 0;  // the client's span; 0: none
  bool is_exported = false;

  // Empty when it has none.
  std::string traceparent() const {
    return context.span != 0 ? context.to_traceparent() : std::string();
  }
};

// Which requests are traced. A client's own context says whether it is sampled; of the others some
// are, when there is a collector.
struct TraceChoice {
  bool has_collector = false;
  std::uint32_t sample_percent = 100;

  // `traceparent`: the client's header, may be empty.
  RequestTrace begin(std::string_view traceparent, const RandomSource& random) const;
};

}  // namespace baton::gateway
