#include "common/rpc/hello_check.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "common/types/kv_layout.h"
#include "common/wire/convert.h"

namespace baton {
namespace {

constexpr std::size_t kMaxNodeName = 64;

struct Mismatch {
  std::string field;
  std::string message;
};

// For messages that go back over a wire and into logs.
std::string brief(const std::string& text) {
  constexpr std::size_t kLongest = 80;
  return text.size() <= kLongest ? text : wire_text(text.substr(0, kLongest)) + "…";
}

std::string layout_text(const wire::ModelIdentity& model) {
  const auto layout = from_wire(model.layout());
  return layout ? layout->to_string() : "an impossible layout";
}

bool are_convertible(const wire::ModelIdentity& a, const wire::ModelIdentity& b) {
  const auto first = from_wire(a.layout());
  const auto second = from_wire(b.layout());
  return first && second && is_convertible(*first, *second);
}

std::optional<Mismatch> compare_models(const wire::ModelIdentity& theirs,
                                       const wire::ModelIdentity& ours) {
  if (theirs.id() != ours.id()) {
    return Mismatch{
        "model.id",
        fmt::format(
            "this side serves model '{}', the other '{}'", brief(ours.id()), brief(theirs.id()))};
  }
  if (theirs.tokenizer_hash() != ours.tokenizer_hash()) {
    return Mismatch{"model.tokenizer_hash",
                    fmt::format("tokenizers differ: {:016x} here, {:016x} there",
                                ours.tokenizer_hash(),
                                theirs.tokenizer_hash())};
  }
  if (theirs.layout_hash() != ours.layout_hash() && !are_convertible(theirs, ours)) {
    return Mismatch{
        "model.layout_hash",
        fmt::format("KV layouts differ in more than block size and order: here {}; there {}",
                    layout_text(ours),
                    layout_text(theirs))};
  }
  if (theirs.numerics_hash() != ours.numerics_hash()) {
    return Mismatch{
        "model.numerics_hash",
        fmt::format(
            "backends compute differently: {:016x} here, {:016x} there; use the same build, "
            "model file, engine.backend, engine.float_path and model.partial_sums",
            ours.numerics_hash(),
            theirs.numerics_hash())};
  }
  return std::nullopt;
}

// What a side says of its own model must hold together before it is compared.
std::optional<Mismatch> check_model_form(const wire::ModelIdentity& model) {
  if (model.id().empty() || model.id().size() > WireLimits::kName) {
    return Mismatch{"model.id", "must have 1 to 256 bytes"};
  }
  const auto layout = from_wire(model.layout());
  if (!layout) {
    return Mismatch{"model.layout", layout.error().message};
  }
  if (layout->hash() != model.layout_hash()) {
    return Mismatch{"model.layout_hash", "is not the hash of model.layout"};
  }
  return std::nullopt;
}

std::optional<Mismatch> check_ucx(const std::string& theirs, const std::string& ours) {
  if (!ours.empty() && theirs != ours) {
    return Mismatch{"ucx_version",
                    fmt::format("UCX {} here, {} there", brief(ours), brief(theirs))};
  }
  return std::nullopt;
}

wire::Refusal refusal_of(ErrorCode code, const Mismatch& mismatch) {
  return to_refusal(Error{code, mismatch.message}, mismatch.field);
}

}  // namespace

bool equal_secrets(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::optional<wire::Refusal> check_hello(const wire::Hello& hello,
                                         const HelloExpectations& expected) {
  if (hello.wire_major() != kWireMajor) {
    return refusal_of(ErrorCode::Mismatch,
                      {"wire_major",
                       fmt::format("this side speaks control protocol {}, the other {}",
                                   kWireMajor,
                                   hello.wire_major())});
  }
  if (!equal_secrets(hello.cluster_token(), expected.cluster_token)) {
    return refusal_of(ErrorCode::Unauthorized, {"cluster_token", "does not match"});
  }
  const auto& role = hello.role();
  if (role != "gateway" && role != "prefill" && role != "decode") {
    return refusal_of(ErrorCode::Mismatch, {"role", fmt::format("'{}' is unknown", brief(role))});
  }
  if (!expected.roles.empty() &&
      std::find(expected.roles.begin(), expected.roles.end(), role) == expected.roles.end()) {
    return refusal_of(ErrorCode::Mismatch,
                      {"role", fmt::format("a {} node has no business here", role)});
  }
  if (hello.node().empty() || hello.node().size() > kMaxNodeName) {
    return refusal_of(ErrorCode::InvalidArgument, {"node", "a name must have 1 to 64 bytes"});
  }
  if (hello.control_address().size() > WireLimits::kName) {
    return refusal_of(ErrorCode::InvalidArgument, {"control_address", "is too long"});
  }
  if (const auto mismatch = check_ucx(hello.ucx_version(), expected.ucx_version)) {
    return refusal_of(ErrorCode::Mismatch, *mismatch);
  }
  if (role != "gateway") {
    if (!hello.has_model()) {
      return refusal_of(ErrorCode::InvalidArgument, {"model", "is missing"});
    }
    if (const auto mismatch = check_model_form(hello.model())) {
      return refusal_of(ErrorCode::InvalidArgument, *mismatch);
    }
    if (expected.model) {
      if (const auto mismatch = compare_models(hello.model(), *expected.model)) {
        return refusal_of(ErrorCode::Mismatch, *mismatch);
      }
    }
  }
  return std::nullopt;
}

Status check_welcome(const wire::Welcome& welcome, const HelloExpectations& expected) {
  if (welcome.node().size() > kMaxNodeName) {
    return fail(ErrorCode::ProtocolError, "welcome.node: is too long");
  }
  if (const auto mismatch = check_ucx(welcome.ucx_version(), expected.ucx_version)) {
    return fail(ErrorCode::Mismatch, mismatch->field + ": " + mismatch->message);
  }
  if (expected.model) {
    if (const auto wrong_form = check_model_form(welcome.model())) {
      return fail(ErrorCode::ProtocolError, wrong_form->field + ": " + wrong_form->message);
    }
    if (const auto mismatch = compare_models(welcome.model(), *expected.model)) {
      return fail(ErrorCode::Mismatch, mismatch->field + ": " + mismatch->message);
    }
  }
  return {};
}

}  // namespace baton
