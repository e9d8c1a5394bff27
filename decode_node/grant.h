// One promise of blocks and the states it may be in.
//
//   Granted ----Commit----> Landing ----all bytes----> Fencing ----no receive left----> (a
//   sequence)
//      |                       |                          |
//      +------cancel, expiry, loss of either side---------+--> Quarantined --fenced--> (free
//      blocks)
//
// The transitions stand in one table, `next_state`.
//
// Thread: control strand. Failure: an event that a state has no use for changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/ids.h"
#include "common/exec/executor.h"
#include "common/types/kv_grant.h"
#include "common/types/request.h"
#include "engine/kv/block_lease.h"
#include "engine/kv/prefix_index.h"
#include "engine/step/sequence.h"
#include "node/client.h"
#include "transfer/transport.h"

namespace baton::decode_node {

// A control connection of a prefill node.
using WriterId = StrongId<struct WriterIdTag, std::uint64_t>;

enum class GrantState : std::uint8_t { Granted, Landing, Fencing, Quarantined, Ended };
constexpr std::size_t kGrantStates = 5;

enum class GrantEvent : std::uint8_t {
  Commit,  // a Commit that matches the grant
  Landed,  // every byte is there, and they are those that were sent
  Revoke,
  Fenced,  // nothing can land any more
};
constexpr std::size_t kGrantEvents = 4;

// nullopt: the event changes nothing in this state.
std::optional<GrantState> next_state(GrantState state, GrantEvent event);

// What the Commit said.
struct Committed {
  TokenId first_token = 0;
  std::uint64_t transfer_us = 0;
};

struct Grant {
  GrantState state = GrantState::Granted;
  LeaseId lease;
  Epoch epoch{};
  node::ClientId client;
  WriterId writer{};  // 0 until a prefill node has named the lease
  GenerateRequest request;
  engine::RequestSize size;
  engine::PrefixRef prefix;                           // leading blocks held already, pinned
  std::vector<engine::BlockLease> blocks;             // the rest of the prompt's, then the output's
  TimePoint deadline{};                               // of the request
  std::uint64_t expected_bytes = 0;                   // that the writer must send
  std::unique_ptr<transfer::LeaseReceiver> receiver;  // null when nothing is to be sent
  Committed committed;
  transfer::LeaseReceiver::Done landed;
  TimerHandle expiry;
};

}  // namespace baton::decode_node
