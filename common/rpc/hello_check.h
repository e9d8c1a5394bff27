// Compares what two sides say of themselves at the handshake, so that a wrong pair is refused there
// by a message that names the field, and never later by a wrong answer.
//
// Thread: plain functions. Failure: a mismatch is the result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/wire/control.pb.h"

namespace baton {

inline constexpr std::uint32_t kWireMajor = 3;  // equal on both sides
inline constexpr std::uint32_t kWireMinor = 0;  // the lower of both is spoken

// What this side wants of the other. Empty or absent: not compared.
struct HelloExpectations {
  std::string cluster_token;       // always compared
  std::vector<std::string> roles;  // roles that may dial here
  // id, tokenizer_hash and numerics_hash equal; layouts equal or convertible
  std::optional<wire::ModelIdentity> model;
  std::string ucx_version;
};

// Checks the own form of a Hello too: known role, node name of 1 to 64 bytes, layout that fits its
// hash.
std::optional<wire::Refusal> check_hello(const wire::Hello& hello,
                                         const HelloExpectations& expected);
// The same for the answer, on the dialling side (no token there: it was proven by being accepted).
Status check_welcome(const wire::Welcome& welcome, const HelloExpectations& expected);
// Equal length and bytes, in time that does not depend on where they differ.
bool equal_secrets(const std::string& a, const std::string& b);

}  // namespace baton
