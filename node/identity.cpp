#include "node/identity.h"

#include <algorithm>
#include <utility>

#include "common/wire/convert.h"

namespace baton::node {

wire::Hello NodeIdentity::hello() const {
  wire::Hello hello;
  hello.set_wire_major(kWireMajor);
  hello.set_wire_minor(kWireMinor);
  hello.set_cluster_token(cluster_token);
  hello.set_role(role);
  hello.set_node(name);
  hello.set_incarnation(incarnation.value);
  hello.set_ucx_version(ucx_version);
  *hello.mutable_model() = model;
  hello.set_control_address(control_address);
  return hello;
}

wire::Welcome NodeIdentity::welcome(const wire::Hello& hello) const {
  wire::Welcome welcome;
  welcome.set_wire_minor(std::min(kWireMinor, hello.wire_minor()));
  welcome.set_node(name);
  welcome.set_incarnation(incarnation.value);
  *welcome.mutable_model() = model;
  welcome.set_ucx_version(ucx_version);
  return welcome;
}

HelloExpectations NodeIdentity::expects(std::vector<std::string> roles) const {
  return {.cluster_token = cluster_token,
          .roles = std::move(roles),
          .model = model,
          .ucx_version = ucx_version};
}

wire::ModelIdentity make_model_identity(const std::string& id,
                                        const engine::ModelInfo& info,
                                        std::uint64_t tokenizer_hash,
                                        std::uint64_t created) {
  wire::ModelIdentity model;
  model.set_id(id);
  model.set_weights_hash(info.weights_hash);
  model.set_tokenizer_hash(tokenizer_hash);
  model.set_numerics_hash(info.numerics_hash);
  *model.mutable_layout() = to_wire(info.layout);
  model.set_layout_hash(info.layout.hash());
  model.set_context_length(info.context_length);
  model.set_vocab_size(info.vocab_size);
  model.set_created(created);
  return model;
}

}  // namespace baton::node
