#include "node/asked.h"

#include <fmt/format.h>

#include "common/types/trace_context.h"
#include "common/wire/convert.h"

namespace baton::node {

Result<Asked> read_request(const wire::GenerateRequest& message,
                           const NodeIdentity& identity,
                           const Logger& log) {
  Asked asked;
  BATON_ASSIGN(asked.request, from_wire(message));
  if (asked.request.model != identity.model.id()) {
    return fail(ErrorCode::NotFound,
                fmt::format("node {} serves model {}", identity.name, identity.model.id()));
  }
  BATON_ASSIGN(asked.size,
               engine::check_size(
                   asked.request, identity.model.context_length(), identity.model.vocab_size()));
  if (const auto trace = TraceContext::parse(message.traceparent())) {
    log.debug("request {:016x} attempt {} is part of trace {}",
              asked.request.id.value,
              asked.request.attempt.value,
              trace->trace_id());
  }
  return asked;
}

}  // namespace baton::node
