#include "gateway/requests/request_trace.h"

namespace baton::gateway {

RequestTrace TraceChoice::begin(std::string_view traceparent, const RandomSource& random) const {
  RequestTrace trace;
  if (const auto client = TraceContext::parse(traceparent)) {
    trace.context = *client;
    trace.parent = client->span;
  } else if (has_collector) {
    trace.context.trace = {random(), random() | 1U};
    trace.context.is_sampled = random() % 100 < sample_percent;
  } else {
    return trace;
  }
  trace.context.span = random() | 1U;
  trace.is_exported = has_collector && trace.context.is_sampled;
  return trace;
}

}  // namespace baton::gateway
