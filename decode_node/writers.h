// The control connections of prefill nodes: requests handed on, Commits, leases in work, aborts
// both ways, and what happens when one is lost.
//
// Owner: DecodeNode. Thread: control strand. Failure: a connection that is lost, misses its
// heartbeats or tells of a data thread that stands still takes its uncommitted leases with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "common/exec/executor.h"
#include "common/obs/log.h"
#include "common/rpc/channel.h"
#include "common/rpc/heartbeat.h"
#include "decode_node/grant_table.h"
#include "decode_node/pull_service.h"
#include "node/data_watch.h"
#include "transfer/transport.h"

namespace baton::decode_node {

class Writers {
 public:
  Writers(Executor& executor,
          transfer::Transport& transport,
          GrantTable& grants,
          PullService& pulls,
          HeartbeatLimits limits,
          const Logger& log);
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;
  ~Writers() = default;

  // A prefill node's connection, after its handshake, and the way in that its bytes take: it is
  // closed when the connection is lost.
  void add(std::unique_ptr<Channel> channel,
           const wire::Hello& hello,
           std::unique_ptr<transfer::Inlet> inlet);
  // The open connection of that life of a prefill node, the newest; zero: there is none.
  WriterId find(const NodeName& node, Incarnation incarnation) const;
  // Dropped when the connection is gone.
  void send(WriterId writer, wire::Frame frame);
  void send_abort(WriterId writer, const wire::Abort& abort);
  void close_all();
  std::uint32_t num_connected() const { return static_cast<std::uint32_t>(writers_.size()); }

 private:
  struct Writer {
    WriterId id;
    NodeName node;
    Incarnation incarnation{};
    std::unique_ptr<Channel> channel;
    std::unique_ptr<transfer::Inlet> inlet;
    std::optional<HeartbeatWatch> watch;
    std::optional<node::DataWatch> data_watch;
  };
  void on_frame(Writer& writer, wire::Frame frame);
  void abort(Writer& writer, const wire::Abort& message);
  void on_heartbeat(Writer& writer, const wire::Heartbeat& heartbeat);
  void lost(WriterId id, const Error& why);

  Executor& executor_;
  transfer::Transport& transport_;
  GrantTable& grants_;
  PullService& pulls_;
  const HeartbeatLimits limits_;
  const Logger& log_;
  std::map<WriterId, std::unique_ptr<Writer>> writers_;
  std::uint64_t next_id_ = 1;
};

}  // namespace baton::decode_node
