// A UCX worker: the object that makes progress and by whose address others connect.
//
// Owner: an inlet or a link. Thread: made anywhere, then used by one thread at a time (the
// reactor). Failure: creating one names what UCX refused.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/base/error.h"
#include "transfer/process_watch.h"
#include "transfer/put_offer.h"
#include "transfer/ucx/context.h"

namespace baton::transfer {

// UCX's numbers for data messages, for what a writer that puts says, and for the answers to it.
constexpr unsigned kDataMessage = 1;
constexpr unsigned kPutNote = 2;
constexpr unsigned kPutAnswer = 3;

class UcxWorker {
 public:
  // `offer`: an encoded PutOffer, which goes into the address; may be empty.
  static Result<std::unique_ptr<UcxWorker>> create(UcxContext& context,
                                                   std::span<const std::byte> offer = {});
  // UCX 1.13 ends the process when a rendezvous is outstanding on the worker: wait for its end, or
  // abandon the worker.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h get() const { return worker_; }
  // Becomes readable when there may be something to progress; arm() before waiting on it.
  int event_fd() const { return event_fd_; }
  // UCX's own address, then the offer, in an envelope with version, process and digest, so that
  // foreign bytes are refused before UCX parses them.
  const std::vector<std::byte>& address() const { return address_; }
  std::size_t max_header_bytes() const { return max_header_bytes_; }

  Status set_message_handler(unsigned id, ucp_am_recv_callback_t callback, void* arg);
  unsigned progress() { return ucp_worker_progress(worker_); }
  // Leaves UCX's worker as it is until the process ends. Nothing lands through it any more, since
  // nobody progresses it, and its callbacks do not run.
  void abandon();
  // False: there is work already, progress again.
  bool arm() { return ucp_worker_arm(worker_) == UCS_OK; }

 private:
  UcxWorker(UcxContext& context, ucp_worker_h worker) : context_(context), worker_(worker) {}
  Status query(std::span<const std::byte> offer);

  UcxContext& context_;
  ucp_worker_h worker_;  // null once abandoned
  int event_fd_ = -1;    // owned by the worker
  std::vector<std::byte> address_;
  std::size_t max_header_bytes_ = 0;
};

// What an address says: UCX's own part, and whose it is.
struct PeerAddress {
  std::vector<std::byte> ucx;
  ProcessIdentity process;
  PutOffer offer;
};

// Checks an envelope made by address(). Failure: Mismatch names both UCX versions; ProtocolError
// for damaged bytes.
Result<PeerAddress> open_address(std::span<const std::byte> envelope);

}  // namespace baton::transfer
