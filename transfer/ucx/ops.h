// Operations outstanding at UCX: each keeps what UCX may still read until UCX has given it back,
// then tells the path that posted it.
//
// Owner: UcxSender. Thread: the reactor. Failure: a refused operation is over at once, with UCX's
// status.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transfer/entries.h"
#include "transfer/message.h"
#include "transfer/put_message.h"
#include "transfer/staging.h"
#include "transfer/ucx/links.h"

namespace baton::transfer {

class DataPath;

// Where a send that puts stands with the receiver.
enum class ClaimState : std::uint8_t { None, Asked, Held, Over };

struct Send {
  Send(const KvGrant& grant, std::uint32_t layers, PlanLimits limits, std::size_t window)
      : entry(grant, layers, limits, window) {}
  SendEntry entry;
  LinkPtr link;
  std::unique_ptr<Staging> staging;  // null: the grant's blocks lie as the arena's
  DataPath* path = nullptr;          // set at begin
  ClaimState claim = ClaimState::None;
};

// Puts and the flush that covers them: they count as sent together, when all are over.
struct PutBatch {
  struct Piece {
    std::shared_ptr<Send> send;
    std::size_t bytes = 0;
  };
  std::vector<Piece> pieces;
  std::size_t waits = 0;   // puts, and the flush, that are not over
  bool is_closed = false;  // its flush is posted
  ucs_status_t status = UCS_OK;
};

struct Op {
  enum class Kind : std::uint8_t { Piece, Flush, Note, Put, PutFlush };
  DataPath* path = nullptr;
  Kind kind = Kind::Piece;
  LinkPtr link;
  std::shared_ptr<Send> send;  // null: of the link alone
  std::shared_ptr<PutBatch> batch;
  EncodedHeader header;
  EncodedPut note;
  std::array<ucp_dt_iov_t, kMaxRuns> parts;
  std::vector<std::byte> staged;  // the bytes, where they had to be gathered
  std::size_t bytes = 0;
  std::size_t slot = 0;  // in active_
  class UcxOps* owner = nullptr;
};

class UcxOps {
 public:
  Op& make(DataPath& path, Op::Kind kind, const LinkPtr& link, std::shared_ptr<Send> send);
  // Callback and argument of the operation's request.
  static void set_callback(ucp_request_param_t& params, Op& op);
  // Takes what the posting call returned.
  void posted(Op& op, ucs_status_ptr_t request);
  // UCX will not give back what is outstanding on `link`.
  void abandon(const Link& link);
  bool is_empty() const { return active_.empty(); }

 private:
  static void on_over(void* request, ucs_status_t status, void* user_data);
  void finish(Op& op, ucs_status_t status);

  std::vector<std::unique_ptr<Op>> active_;
  std::vector<std::unique_ptr<Op>> spare_;
  std::size_t spare_staged_ = 0;  // capacity of staged bytes in spare_
};

}  // namespace baton::transfer
