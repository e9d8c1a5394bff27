// What one connection to a gateway is told of the node's prefix cache: first the whole list of
// blocks, piece by piece, then what has been stored and removed since. A connection that lags so
// far that the index has forgotten changes gets a new list.
//
// Owner: GatewayLinks, one a connection. Thread: control strand. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/wire/control.pb.h"
#include "engine/kv/prefix_index.h"

namespace baton::node {

class KvEventFeed {
 public:
  // Names in one message: 128 KiB, well below the frame limit.
  static constexpr std::size_t kMaxNames = std::size_t{16} << 10;

  // `index` outlives the feed.
  explicit KvEventFeed(const engine::PrefixIndex& index) : index_(index) {}

  // What the next heartbeat says; empty when there is nothing new, or no prefix cache.
  std::optional<wire::KvEvents> next();

 private:
  void add_list(wire::KvEvents& events);
  void add_changes(wire::KvEvents& events);

  const engine::PrefixIndex& index_;
  std::uint64_t sequence_ = 0;       // of the last message
  std::uint64_t next_change_ = 0;    // in the index's journal
  std::vector<std::uint64_t> list_;  // blocks that were there before next_change_, still to be told
};

}  // namespace baton::node
