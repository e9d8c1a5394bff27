// Serves Pull: sends blocks of a cached prefix into a lease of a prefill node's arena. The prefix
// is looked up by its token ids, pinned while it is sent, and answered once every byte is flushed.
//
// Owner: DecodeNode. Thread: control strand; the transport's callbacks post themselves there.
// Failure: a Refusal as the answer; NotFound when no whole block is held, Busy when the prefill
// node has too many pulls open. A pull that its node gives up, or whose node is lost, is aborted;
// what does not come to rest within kQuietLimit takes the connection to that node with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/exec/executor.h"
#include "common/rpc/channel.h"
#include "decode_node/grant.h"
#include "decode_node/probe.h"
#include "engine/kv/kv_memory.h"
#include "transfer/transport.h"

namespace baton::decode_node {

class PullService {
 public:
  static constexpr std::size_t kMaxOpen = 16;  // of one prefill node
  static constexpr std::chrono::milliseconds kQuietLimit{5'000};

  PullService(Executor& executor,
              transfer::Transport& transport,
              engine::KvMemory& kv,
              Probe& probe,
              transfer::DigestMode digest)
      : executor_(executor), transport_(transport), kv_(kv), probe_(probe), digest_(digest) {}
  PullService(const PullService&) = delete;
  PullService& operator=(const PullService&) = delete;
  ~PullService() = default;

  // `worker_address`: the prefill node's way in; empty when it takes none. `channel` stays until
  // `writer_lost`.
  void add_writer(WriterId writer, Channel& channel, std::string worker_address);
  void writer_lost(WriterId writer);
  // Answers the frame, now or later.
  void pull(WriterId writer, const wire::Frame& frame);
  // The prefill node gives the lease up. False: not a lease of a pull.
  bool abort(LeaseId lease, Epoch epoch);
  std::size_t num_open() const { return open_.size(); }

 private:
  struct Writer {
    Channel* channel = nullptr;
    std::string address;
    std::shared_ptr<transfer::Peer> peer;  // made at the first pull
  };
  struct Open {
    WriterId writer;
    LeaseId lease;
    Epoch epoch{};
    wire::Frame question;      // its body is gone: only for the answer
    engine::PrefixRef prefix;  // stays until nothing reads it
    std::unique_ptr<transfer::LeaseSender> sender;
    std::uint32_t blocks = 0;
    bool is_aborted = false;
    TimerHandle quiet_limit;
  };

  Status begin(WriterId writer, const wire::Frame& frame);
  Status connect(WriterId id, Writer& writer);
  void flushed(std::uint64_t number, const Result<transfer::Sent>& sent);
  void abort(std::uint64_t number, Open& open);
  void give_up(std::uint64_t number);
  template <class Function>
  auto on_strand(Function function);

  Executor& executor_;
  transfer::Transport& transport_;
  engine::KvMemory& kv_;
  Probe& probe_;
  const transfer::DigestMode digest_;  // what Welcome told: the prefill node expects the same
  std::map<WriterId, Writer> writers_;
  std::map<std::uint64_t, Open> open_;
  std::uint64_t next_number_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::decode_node
