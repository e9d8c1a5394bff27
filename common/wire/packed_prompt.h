// A prompt as it lies on the wire, made once and sent to two nodes: protobuf would count and write
// each of its tokens twice for each of them.
//
// The bytes go in as an unknown field with the number of `prompt`, which a receiver cannot tell
// from the field itself. Such a message must be sent: to readers in this process it has no prompt.
//
// Thread: plain functions. Failure: none.
#pragma once

#include <span>
#include <string>

#include "common/base/ids.h"
#include "common/types/request.h"
#include "common/wire/control.pb.h"

namespace baton {

// Tokens as a packed field holds them. REQUIRES: none is negative.
std::string pack_tokens(std::span<const TokenId> tokens);
// As to_wire, with `packed` in place of request.prompt.
wire::GenerateRequest to_wire_packed(const GenerateRequest& request, std::string packed);

}  // namespace baton
