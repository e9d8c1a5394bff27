// How a role names and reaches the gateways that are connected to its node.
//
// Thread: plain values; a FrameSender is called on the control strand. Failure: a frame to a client
// that is gone is dropped.
#pragma once

#include <cstdint>
#include <functional>

#include "common/base/ids.h"
#include "common/wire/control.pb.h"

namespace baton::node {

// One connection of one gateway; a new connection is a new client.
using ClientId = StrongId<struct ClientIdTag, std::uint64_t>;

// One life of a gateway's process, as other nodes know it.
struct GatewayLife {
  NodeName name;
  Incarnation incarnation{};
  bool operator==(const GatewayLife&) const = default;
};

using FrameSender = std::function<void(ClientId, wire::Frame)>;

}  // namespace baton::node
