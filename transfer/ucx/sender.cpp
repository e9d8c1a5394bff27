#include "transfer/ucx/sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace baton::transfer {

// One operation outstanding; UCX holds a pointer to it, to its header and parts until it is over.
struct UcxSender::Op {
  UcxSender* owner = nullptr;
  std::shared_ptr<Send> send;
  EncodedHeader header;
  std::array<ucp_dt_iov_t, kMaxRuns> parts;
  std::size_t bytes = 0;
  bool is_flush = false;
  std::size_t slot = 0;  // in active_
};

UcxSender::UcxSender(const KvArenaView& arena) : arena_(arena) {}
UcxSender::~UcxSender() = default;

void UcxSender::attach(UcxWorker* worker, ucp_mem_h memory, Reactor* reactor) {
  worker_ = worker;
  memory_ = memory;
  reactor_ = reactor;
}

void UcxSender::touch() {
  is_dirty_ = true;
  if (worker_ == nullptr) {
    turn();  // after the end there is no reactor that would
  }
}

void UcxSender::connect(const std::shared_ptr<Link>& link, const PeerAddress& address) {
  const Status status = worker_ == nullptr
                            ? fail(ErrorCode::Unavailable, "the transport has stopped")
                            : open_link(link, address);
  if (!status) {
    link->is_up = false;
    if (link->failed) {
      std::exchange(link->failed, nullptr)(status.error());
    }
  }
}

Status UcxSender::open_link(const std::shared_ptr<Link>& link, const PeerAddress& address) {
  BATON_ASSIGN(link->process, watch_process(address.process));
  // The endpoint is owned by the link, so the callback's pointer lives as long as it can run.
  BATON_ASSIGN(
      link->endpoint,
      UcxEndpoint::create(*worker_, address.ucx, [this, raw = link.get()](ucs_status_t why) {
        raw->lost = why;
        has_lost_ = true;
      }));
  link->lane = link->endpoint->lane();
  links_.push_back(link);
  if (link->process) {
    BATON_TRY(reactor_->watch(link->process.get(), [this, link] {
      lose(*link, Error{ErrorCode::PeerDead, "the peer's process has ended"});
      start_close(link, true);
    }));
  }
  return {};
}

void UcxSender::release(const std::shared_ptr<Link>& link) {
  link->failed = nullptr;
  if (link->is_up.exchange(false)) {
    start_close(link, link->operations > 0);
  }
}

void UcxSender::begin(const std::shared_ptr<Send>& send) {
  sends_.push_back(send);
  counters_.open.store(sends_.size(), std::memory_order_relaxed);
  if (!send->link->is_up) {
    send->entry.session.fail(Error{ErrorCode::PeerDead, "the connection to the peer is lost"});
  }
  touch();
}

bool UcxSender::turn() {
  bool worked = false;
  if (has_lost_ || !closing_.empty()) {
    check_links();
  }
  while (std::exchange(is_dirty_, false)) {
    worked = true;
    bool moved = true;
    while (moved) {
      moved = false;
      for (const auto& send : sends_) {
        if (auto piece = send->entry.session.next()) {
          transmit(send, *piece);
          moved = true;
        }
      }
    }
    for (const auto& send : sends_) {
      if (send->entry.session.needs_flush()) {
        flush(send);
      }
    }
    worked |= reap();
  }
  return worked;
}

bool UcxSender::reap() {
  const auto sends = sends_;  // callbacks may end handles, never sends_ itself
  for (const auto& send : sends) {
    send->entry.notify();
  }
  const auto removed =
      std::erase_if(sends_, [](const auto& send) { return send->entry.session.is_over(); });
  counters_.open.store(sends_.size(), std::memory_order_relaxed);
  return removed > 0;
}

UcxSender::Op& UcxSender::make_op(const std::shared_ptr<Send>& send) {
  std::unique_ptr<Op> op;
  if (spare_.empty()) {
    op = std::make_unique<Op>();
    op->owner = this;
  } else {
    op = std::move(spare_.back());
    spare_.pop_back();
  }
  op->send = send;
  op->slot = active_.size();
  ++send->link->operations;
  active_.push_back(std::move(op));
  return *active_.back();
}

void UcxSender::transmit(const std::shared_ptr<Send>& send, const Piece& piece) {
  MessageHeader header;
  header.lease = send->entry.session.lease();
  header.epoch = send->entry.session.epoch();
  header.layer = piece.layer;
  header.lane = send->link->lane;
  for (const Segment& segment : piece.segments) {
    header.add_run({segment.target, segment.count});
  }
  Op& op = make_op(send);
  op.is_flush = false;
  op.bytes = piece.bytes;
  encode(header, op.header);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_DATATYPE;
  params.cb.send = &UcxSender::on_sent;
  params.user_data = &op;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const void* buffer = nullptr;
  std::size_t count = 0;
  if (piece.segments.size() == 1) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = memory_;
    params.datatype = ucp_dt_make_contig(1);
    buffer = arena_.block(piece.layer, piece.segments[0].source);
    count = piece.bytes;
  } else {
    params.datatype = UCP_DATATYPE_IOV;
    for (std::size_t i = 0; i < piece.segments.size(); ++i) {
      op.parts[i].buffer = arena_.block(piece.layer, piece.segments[i].source);
      op.parts[i].length = piece.segments[i].count * arena_.layout.block_bytes();
    }
    buffer = op.parts.data();
    count = piece.segments.size();
  }
  posted(op,
         ucp_am_send_nbx(send->link->endpoint->get(),
                         kDataMessage,
                         op.header.bytes.data(),
                         op.header.size,
                         buffer,
                         count,
                         &params));
}

void UcxSender::flush(const std::shared_ptr<Send>& send) {
  send->entry.session.flush_posted();
  Op& op = make_op(send);
  op.is_flush = true;
  op.bytes = 0;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &UcxSender::on_sent;
  params.user_data = &op;
  posted(op, ucp_ep_flush_nbx(send->link->endpoint->get(), &params));
}

void UcxSender::posted(Op& op, ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) {
    finish(op, UCS_PTR_STATUS(request));  // over already, or refused
  }
}

void UcxSender::on_sent(void* request, ucs_status_t status, void* user_data) {
  Op& op = *static_cast<Op*>(user_data);
  op.owner->finish(op, status);
  ucp_request_free(request);
}

void UcxSender::finish(Op& op, ucs_status_t status) {
  std::unique_ptr<Op> owned = std::move(active_[op.slot]);
  if (op.slot + 1 != active_.size()) {
    active_[op.slot] = std::move(active_.back());
    active_[op.slot]->slot = op.slot;
  }
  active_.pop_back();
  const std::shared_ptr<Send> send = std::move(owned->send);
  --send->link->operations;
  SenderSession& session = send->entry.session;
  if (status != UCS_OK) {
    counters_.failed.fetch_add(1, std::memory_order_relaxed);
    session.fail(Error{ErrorCode::PeerDead, ucx_error("sending to the peer", status)});
  } else {
    counters_.bytes.fetch_add(owned->bytes, std::memory_order_relaxed);
  }
  if (owned->is_flush) {
    session.flush_done();
  } else {
    session.completed(owned->bytes);
  }
  spare_.push_back(std::move(owned));
  touch();
}

void UcxSender::lose(Link& link, const Error& error) {
  if (!link.is_up.exchange(false)) {
    return;
  }
  for (const auto& send : sends_) {
    if (send->link.get() == &link) {
      send->entry.session.fail(error);
    }
  }
  touch();
  if (link.failed) {
    std::exchange(link.failed, nullptr)(error);
  }
}

void UcxSender::start_close(const std::shared_ptr<Link>& link, bool force) {
  if (link->is_closing || !link->endpoint) {
    return;
  }
  link->is_closing = true;
  if (link->process) {
    reactor_->unwatch(link->process.get());
    link->process = UniqueFd();
  }
  std::erase(links_, link);
  link->close_request = link->endpoint->close(force);
  if (link->close_request != nullptr || link->operations > 0) {
    closing_.push_back(link);
  } else {
    link->endpoint.reset();
  }
}

void UcxSender::check_links() {
  if (std::exchange(has_lost_, false)) {
    const auto links = links_;
    for (const auto& link : links) {
      if (link->lost != UCS_OK) {
        lose(*link,
             Error{ErrorCode::PeerDead, ucx_error("the peer's data connection", link->lost)});
        start_close(link, true);
      }
    }
  }
  std::erase_if(closing_, [](const std::shared_ptr<Link>& link) {
    if (link->close_request != nullptr) {
      if (ucp_request_check_status(link->close_request) == UCS_INPROGRESS) {
        return false;
      }
      ucp_request_free(std::exchange(link->close_request, nullptr));
    }
    if (link->operations > 0) {
      return false;
    }
    link->endpoint.reset();
    return true;
  });
}

void UcxSender::fail_all(const Error& error) {
  for (const auto& send : sends_) {
    send->entry.session.fail(error);
  }
  touch();
}

void UcxSender::close_all() {
  const auto links = links_;
  for (const auto& link : links) {
    link->is_up = false;
    start_close(link, link->operations > 0);
  }
}

void UcxSender::abandon() {
  worker_ = nullptr;
  while (!active_.empty()) {
    finish(*active_.back(), UCS_ERR_CANCELED);
  }
  reap();
  closing_.clear();
  links_.clear();
}

}  // namespace baton::transfer
