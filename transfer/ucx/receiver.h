// Open leases and what arrives for them. A message's header is checked against its lease before any
// byte moves: then its bytes are received straight into the granted blocks, or it is dropped and
// counted.
//
// Owner: UcxTransport. Thread: `open`, `close` and counters from any thread, the rest on the
// reactor. Failure: foreign input is dropped; a receive that ends without its bytes frees its
// blocks for another try.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/types/kv_layout.h"
#include "transfer/entries.h"
#include "transfer/message.h"

namespace baton::transfer {

class UcxReceiver {
 public:
  struct Counters {
    std::atomic<std::uint64_t> bytes = 0;
    std::atomic<std::uint64_t> messages = 0;
    std::atomic<std::uint64_t> failed = 0;
    std::array<std::atomic<std::uint64_t>, kDropReasons> dropped{};
  };

  explicit UcxReceiver(const KvArenaView& arena);
  ~UcxReceiver();
  UcxReceiver(const UcxReceiver&) = delete;
  UcxReceiver& operator=(const UcxReceiver&) = delete;

  // Set once before the worker progresses; both outlive every receive.
  void attach(ucp_worker_h worker, ucp_mem_h memory);

  std::shared_ptr<LeaseEntry> open(LeaseId lease, Epoch epoch, std::vector<BlockRun> runs);
  // Messages for it count as UnknownLease from now on.
  void close(LeaseId lease);
  void revoke_all();
  // The worker is gone: receives that were under way will never end by themselves.
  void abandon();

  std::size_t open_leases() const;
  bool is_receiving() const { return !active_.empty(); }
  const Counters& counters() const { return counters_; }

  // UCX's message callback; `arg` is the UcxReceiver.
  static ucs_status_t on_message(void* arg,
                                 const void* header,
                                 std::size_t header_length,
                                 void* data,
                                 std::size_t length,
                                 const ucp_am_recv_param_t* param);

 private:
  struct Op;
  static void on_received(void* request, ucs_status_t status, std::size_t length, void* user_data);
  ucs_status_t handle(std::span<const std::byte> header_bytes,
                      void* data,
                      std::size_t length,
                      bool is_rendezvous);
  std::shared_ptr<LeaseEntry> find(LeaseId lease) const;
  void drop(DropReason reason);
  void copy(const MessageHeader& header, const std::byte* data);
  void receive(std::shared_ptr<LeaseEntry> entry,
               const MessageHeader& header,
               void* descriptor,
               std::size_t length);
  void finish(Op& op, ucs_status_t status, std::size_t length);

  const KvArenaView arena_;
  ucp_worker_h worker_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  std::vector<std::unique_ptr<Op>> active_;  // receives under way
  std::vector<std::unique_ptr<Op>> spare_;
  Counters counters_;
  mutable std::mutex mutex_;  // guards leases_, not what it points to
  std::unordered_map<LeaseId, std::shared_ptr<LeaseEntry>> leases_;
};

}  // namespace baton::transfer
