#include "transfer/ucx/put_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace baton::transfer {
namespace {

// Flushes under way on a link, above which the next puts share one.
constexpr std::size_t kMaxFlushes = 2;
// Claims that are remembered for the case that a connection breaks.
constexpr std::size_t kMaxAsked = 4096;

}  // namespace

bool UcxPutPath::is_open(const std::shared_ptr<Send>& send) {
  if (send->claim == ClaimState::None && send->link->is_up) {
    send->claim = ClaimState::Asked;
    const SenderSession& session = send->entry.session;
    send->link->asked[session.lease()] = send;
    note(send->link, send, PutKind::Claim, session.lease(), session.epoch(), 0);
  }
  return send->claim == ClaimState::Held;
}

void UcxPutPath::answered(const LinkPtr& link, const PutMessage& answer) {
  const auto asked = link->asked.extract(answer.lease);
  if (!asked) {
    return;  // nobody has asked
  }
  const std::shared_ptr<Send> send = asked.mapped().lock();
  context_.is_dirty = true;
  if (answer.bytes == 0) {
    if (send) {
      send->claim = ClaimState::Over;
      send->entry.session.fail(
          Error{ErrorCode::GrantRevoked, "the decode node lets nobody put into this lease"});
    }
  } else if (send && !send->entry.session.is_over()) {
    send->claim = ClaimState::Held;
  } else if (link->is_up) {
    note(link, nullptr, PutKind::Released, answer.lease, answer.epoch, 0);
  }
}

void UcxPutPath::flush(const std::shared_ptr<Send>& send) {
  SenderSession& session = send->entry.session;
  session.flush_posted();
  if (send->claim == ClaimState::Held) {
    send->claim = ClaimState::Over;
    note(send->link, send, PutKind::Done, session.lease(), session.epoch(), session.bytes_sent());
  }
  flush_link(send);
}

void UcxPutPath::release(const std::shared_ptr<Send>& send) {
  if (send->claim == ClaimState::Held && send->link->is_up) {
    send->claim = ClaimState::Over;
    const SenderSession& session = send->entry.session;
    note(send->link, nullptr, PutKind::Released, session.lease(), session.epoch(), 0);
  }
}

void UcxPutPath::note(const LinkPtr& link,
                      std::shared_ptr<Send> send,
                      PutKind kind,
                      LeaseId lease,
                      Epoch epoch,
                      std::uint64_t bytes) {
  Op& op = context_.ops.make(*this, Op::Kind::Note, link, std::move(send));
  op.note = encode(PutMessage{.kind = kind,
                              .path = this->kind(),
                              .lane = link->lane,
                              .epoch = epoch,
                              .lease = lease,
                              .writer = self_,
                              .bytes = bytes});
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = kind == PutKind::Claim ? UCP_AM_SEND_FLAG_REPLY : 0;
  UcxOps::set_callback(params, op);
  context_.ops.posted(
      op,
      ucp_am_send_nbx(
          link->endpoint->get(), kPutNote, op.note.data(), op.note.size(), nullptr, 0, &params));
}

std::optional<std::uint64_t> UcxPutPath::place_of(Send& send,
                                                  std::uint32_t layer,
                                                  const Segment& segment) {
  const auto place = send.link->offer.offset_of(layer, {segment.target, segment.count});
  if (!place) {
    send.entry.session.fail(
        Error{ErrorCode::InvalidArgument,
              fmt::format("the grant names blocks {}..{} and the decode node's arena has {}",
                          segment.target.value,
                          std::uint64_t{segment.target.value} + segment.count,
                          send.link->offer.num_blocks)});
  }
  return place;
}

void UcxPutPath::on_over(Op& op, ucs_status_t status) {
  if (op.send) {
    check(*op.send, status);
    if (op.kind == Op::Kind::Flush) {
      op.send->entry.session.flush_done();
    }
  }
  context_.is_dirty = true;
}

void UcxRdmaPutPath::post(const std::shared_ptr<Send>& send, const Piece& piece) {
  const LinkPtr& link = send->link;
  const std::size_t block_bytes = context_.arena.layout.block_bytes();
  if (!link->batch) {
    link->batch = std::make_shared<PutBatch>();
    open_.push_back(link);
  }
  const std::shared_ptr<PutBatch> batch = link->batch;
  batch->pieces.push_back({send, piece.bytes});
  for (const Segment& segment : piece.segments) {
    const auto place = place_of(*send, piece.layer, segment);
    if (!place) {
      return;  // the piece ends with its batch
    }
    Op& op = context_.ops.make(*this, Op::Kind::Put, link, send);
    op.batch = batch;
    ++batch->waits;
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
    params.memory_type = context_.memory_type;
    params.memh = context_.memory;
    UcxOps::set_callback(params, op);
    context_.ops.posted(op,
                        ucp_put_nbx(link->endpoint->get(),
                                    context_.arena.block(piece.layer, segment.source),
                                    segment.count * block_bytes,
                                    link->offer.base + *place,
                                    link->key,
                                    &params));
  }
}

void UcxRdmaPutPath::end_turn() {
  std::erase_if(open_, [this](const LinkPtr& link) {
    if (link->flushes >= kMaxFlushes) {
      return false;  // one of them ends, then a turn comes
    }
    const std::shared_ptr<PutBatch> batch = std::move(link->batch);
    link->batch = nullptr;
    Op& op = context_.ops.make(*this, Op::Kind::PutFlush, link, nullptr);
    op.batch = batch;
    batch->is_closed = true;
    ++batch->waits;
    ++link->flushes;
    if (link->is_closing) {
      context_.ops.posted(op, UCS_STATUS_PTR(UCS_ERR_CANCELED));
      return true;
    }
    ucp_request_param_t params{};
    UcxOps::set_callback(params, op);
    context_.ops.posted(op, ucp_ep_flush_nbx(link->endpoint->get(), &params));
    return true;
  });
}

void UcxRdmaPutPath::on_over(Op& op, ucs_status_t status) {
  if (op.kind != Op::Kind::Put && op.kind != Op::Kind::PutFlush) {
    UcxPutPath::on_over(op, status);
    return;
  }
  PutBatch& batch = *op.batch;
  --batch.waits;
  if (status != UCS_OK) {
    batch.status = status;
  }
  if (op.kind == Op::Kind::PutFlush) {
    --op.link->flushes;
  }
  if (batch.is_closed && batch.waits == 0) {
    complete(batch);
  }
  context_.is_dirty = true;
}

void UcxRdmaPutPath::complete(const PutBatch& batch) {
  for (const PutBatch::Piece& piece : batch.pieces) {
    check(*piece.send, batch.status);
    if (batch.status == UCS_OK) {
      context_.counters.bytes.fetch_add(piece.bytes, std::memory_order_relaxed);
    }
    piece.send->entry.session.completed(piece.bytes);
  }
}

bool ShmPutPath::is_open(const std::shared_ptr<Send>& send) {
  const bool asks = send->claim == ClaimState::None && send->link->is_up;
  const bool is_held = UcxPutPath::is_open(send);
  if (asks) {
    if (asked_.size() == kMaxAsked) {
      asked_.pop_front();
    }
    asked_.push_back(
        {send->link->peer, send->entry.session.lease(), send->entry.session.epoch(), send});
  }
  return is_held;
}

void ShmPutPath::settle_claims(const LinkPtr& link) {
  std::erase_if(asked_, [&](const Asked& asked) {
    if (asked.receiver != link->peer) {
      return false;
    }
    const auto send = asked.send.lock();
    if (send && !send->entry.session.is_over()) {
      return false;
    }
    note(link, nullptr, PutKind::Released, asked.lease, asked.epoch, 0);
    return true;
  });
}

void ShmPutPath::post(const std::shared_ptr<Send>& send, const Piece& piece) {
  for (const Segment& segment : piece.segments) {
    const auto place = place_of(*send, piece.layer, segment);
    if (!place) {
      break;
    }
    std::memcpy(send->link->mapped->base() + *place,
                context_.arena.block(piece.layer, segment.source),
                segment.count * context_.arena.layout.block_bytes());
  }
  copied_.push_back({send, piece.bytes});
}

bool ShmPutPath::begin_turn() {
  if (copied_.empty()) {
    return false;
  }
  // What follows, by whatever way, is seen after the copies.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const PutBatch::Piece& piece : copied_) {
    context_.counters.bytes.fetch_add(piece.bytes, std::memory_order_relaxed);
    piece.send->entry.session.completed(piece.bytes);
  }
  copied_.clear();
  context_.is_dirty = true;
  return true;
}

}  // namespace baton::transfer
