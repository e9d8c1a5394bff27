// What both roles check of a request before they look at their own room: that it is whole, of the
// model served here, and that it can fit the model's context.
//
// Thread: plain functions. Failure: ProtocolError, NotFound, ContextTooLong, InvalidArgument, each
// with a sentence for the client.
#pragma once

#include "common/base/error.h"
#include "common/obs/log.h"
#include "common/types/request.h"
#include "common/wire/control.pb.h"
#include "engine/step/sequence.h"
#include "node/identity.h"

namespace baton::node {

struct Asked {
  GenerateRequest request;
  engine::RequestSize size;
};

// A request that belongs to a trace is told in a line of level debug, so that lines of nodes can be
// found from the trace.
Result<Asked> read_request(const wire::GenerateRequest& message,
                           const NodeIdentity& identity,
                           const Logger& log);

}  // namespace baton::node
