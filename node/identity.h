// What a node says of itself at every handshake, and what it wants of the other side.
//
// Thread: const after building. Failure: none.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/rpc/hello_check.h"
#include "common/wire/control.pb.h"
#include "engine/runner.h"

namespace baton::node {

struct NodeIdentity {
  NodeName name;
  std::string role;  // prefill, decode
  Incarnation incarnation{};
  std::string cluster_token;
  std::string ucx_version;
  wire::ModelIdentity model;
  std::string control_address;  // empty: does not listen

  wire::Hello hello() const;
  wire::Welcome welcome(const wire::Hello& hello) const;
  // For a peer that exchanges KV blocks with this node.
  HelloExpectations expects(std::vector<std::string> roles) const;
};

// `created`: unix seconds, for /v1/models.
wire::ModelIdentity make_model_identity(const std::string& id,
                                        const engine::ModelInfo& info,
                                        std::uint64_t tokenizer_hash,
                                        std::uint64_t created);

}  // namespace baton::node
