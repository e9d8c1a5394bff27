#include "transfer/ucx/receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "transfer/ucx/endpoint.h"

namespace baton::transfer {
namespace {

// Longer than UCX's keepalive needs to find a dead peer and fail what it owes.
constexpr std::chrono::milliseconds kReceiverCloseLimit{1'000};

}  // namespace

// One receive under way; UCX holds a pointer to it until its callback ran.
struct UcxReceiver::Op {
  InletState* inlet = nullptr;
  std::shared_ptr<LeaseEntry> entry;
  MessageHeader header;
  std::size_t length = 0;
  std::array<ucp_dt_iov_t, kMaxRuns> parts;  // places of the runs
  std::size_t slot = 0;                      // in active_
};

UcxReceiver::UcxReceiver(const KvArenaView& arena,
                         const UcxMemory& memory,
                         Reactor& reactor,
                         PutOffer offer)
    : arena_(arena),
      memory_(memory),
      reactor_(reactor),
      offer_(std::move(offer)),
      claims_(reactor) {}
UcxReceiver::~UcxReceiver() = default;

Result<std::shared_ptr<UcxReceiver::InletState>> UcxReceiver::make_inlet(UcxContext& context) {
  auto inlet = std::make_shared<InletState>();
  inlet->owner = this;
  BATON_ASSIGN(inlet->worker, UcxWorker::create(context, encode(offer_)));
  BATON_TRY(inlet->worker->set_message_handler(kPutNote, &UcxReceiver::on_put_note, inlet.get()));
  BATON_TRY(
      inlet->worker->set_message_handler(kDataMessage, &UcxReceiver::on_message, inlet.get()));
  return inlet;
}

void UcxReceiver::add(const std::shared_ptr<InletState>& inlet) {
  if (is_stopped_ || !reactor_.watch(inlet->worker->event_fd(), nullptr)) {
    inlet->worker.reset();
    return;
  }
  inlets_.push_back(inlet);
}

void UcxReceiver::remove(const std::shared_ptr<InletState>& inlet) {
  if (inlet->is_closing || std::find(inlets_.begin(), inlets_.end(), inlet) == inlets_.end()) {
    return;
  }
  inlet->is_closing = true;
  inlet->close_limit = std::chrono::steady_clock::now() + kReceiverCloseLimit;
  ++num_closing_;
  check();
}

void UcxReceiver::check() {
  if (num_closing_ == 0) {
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  std::vector<std::shared_ptr<InletState>> ended;
  std::erase_if(inlets_, [&](const std::shared_ptr<InletState>& inlet) {
    const bool ends = inlet->is_closing &&
                      (is_quiet(*inlet) || (now >= inlet->close_limit && may_abandon(*inlet)));
    if (ends) {
      ended.push_back(inlet);
    }
    return ends;
  });
  num_closing_ -= ended.size();
  for (const auto& inlet : ended) {
    end(*inlet);
  }
}

// Nothing is under way, and nothing is to be waited for.
bool UcxReceiver::is_quiet(const InletState& inlet) const {
  return inlet.receives == 0 && (is_stopped_ || (inlet.has_heard && !claims_.has_any(&inlet)));
}

bool UcxReceiver::may_abandon(const InletState& inlet) const {
  return inlet.receives == 0 || is_stopped_ || !claims_.has_any(&inlet, PathKind::RdmaPut);
}

void UcxReceiver::end(InletState& inlet) {
  reactor_.unwatch(inlet.worker->event_fd());
  const bool is_destroyed = inlet.receives == 0;
  if (!is_destroyed) {
    inlet.worker->abandon();
  }
  inlet.worker.reset();
  if (is_destroyed) {
    claims_.inlet_closed(&inlet);
  }
  for (std::size_t i = active_.size(); i-- > 0;) {
    if (active_[i]->inlet == &inlet) {
      finish(*active_[i], UCS_ERR_CANCELED, 0);  // moves the last one here
    }
  }
}

void UcxReceiver::stop() {
  is_stopped_ = true;
  std::unordered_map<LeaseId, std::shared_ptr<LeaseEntry>> leases;
  {
    const std::lock_guard lock(mutex_);
    leases = std::exchange(leases_, {});
  }
  for (const auto& [id, entry] : leases) {
    entry->revoke(nullptr);
  }
  const auto inlets = inlets_;
  for (const auto& inlet : inlets) {
    remove(inlet);
  }
}

unsigned UcxReceiver::progress() {
  unsigned done = 0;
  for (const auto& inlet : inlets_) {
    done += inlet->worker->progress();
  }
  return done;
}

bool UcxReceiver::arm() {
  return std::all_of(
      inlets_.begin(), inlets_.end(), [](const auto& inlet) { return inlet->worker->arm(); });
}

std::shared_ptr<LeaseEntry> UcxReceiver::open(LeaseId lease,
                                              Epoch epoch,
                                              std::vector<BlockRun> runs,
                                              DigestMode digest) {
  auto entry = std::make_shared<LeaseEntry>(lease, epoch, arena_, std::move(runs), digest);
  const std::lock_guard lock(mutex_);
  const bool is_new = leases_.emplace(lease, entry).second;
  BATON_CHECK(is_new, "a lease id is drawn once");
  return entry;
}

void UcxReceiver::close(LeaseId lease) {
  const std::lock_guard lock(mutex_);
  leases_.erase(lease);
}

std::shared_ptr<LeaseEntry> UcxReceiver::find(LeaseId lease) const {
  const std::lock_guard lock(mutex_);
  const auto at = leases_.find(lease);
  return at == leases_.end() ? nullptr : at->second;
}

std::size_t UcxReceiver::open_leases() const {
  const std::lock_guard lock(mutex_);
  return leases_.size();
}

ucs_status_t UcxReceiver::on_message(void* arg,
                                     const void* header,
                                     std::size_t header_length,
                                     void* data,
                                     std::size_t length,
                                     const ucp_am_recv_param_t* param) {
  InletState& inlet = *static_cast<InletState*>(arg);
  return inlet.owner->handle(inlet,
                             {static_cast<const std::byte*>(header), header_length},
                             data,
                             length,
                             (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}

ucs_status_t UcxReceiver::handle(InletState& inlet,
                                 std::span<const std::byte> header_bytes,
                                 void* data,
                                 std::size_t length,
                                 bool is_rendezvous) {
  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  inlet.has_heard = true;
  MessageHeader header;
  if (!decode(header_bytes, header)) {
    drop(DropReason::Malformed);
    return UCS_OK;
  }
  auto entry = inlet.is_closing ? nullptr : find(header.lease);
  if (!entry) {
    drop(DropReason::UnknownLease);
    return UCS_OK;
  }
  const DropReason reason = entry->session.admit(header, length);
  if (reason != DropReason::None) {
    drop(reason);
    return UCS_OK;
  }
  if (is_rendezvous) {
    receive(inlet, std::move(entry), header, data, length);
    return UCS_INPROGRESS;
  }
  copy(header, static_cast<const std::byte*>(data));
  counters_.bytes.fetch_add(length, std::memory_order_release);  // a reader sees the bytes too
  entry->session.landed(header);
  entry->notify();
  return UCS_OK;
}

ucs_status_t UcxReceiver::on_put_note(void* arg,
                                      const void* header,
                                      std::size_t header_length,
                                      void* /*data*/,
                                      std::size_t length,
                                      const ucp_am_recv_param_t* param) {
  InletState& inlet = *static_cast<InletState*>(arg);
  UcxReceiver& self = *inlet.owner;
  self.counters_.messages.fetch_add(1, std::memory_order_relaxed);
  inlet.has_heard = true;
  PutMessage message;
  const bool has_reply = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  if (length != 0 ||
      !decode({static_cast<const std::byte*>(header), header_length}, message).has_value() ||
      message.kind == PutKind::Answer || (message.kind == PutKind::Claim && !has_reply)) {
    self.drop(DropReason::Malformed);
    return UCS_OK;
  }
  self.handle_put(inlet, message, has_reply ? param->reply_ep : nullptr);
  return UCS_OK;
}

void UcxReceiver::handle_put(InletState& inlet, const PutMessage& message, ucp_ep_h reply) {
  if (message.kind != PutKind::Claim) {
    claims_.end(message, counters_.bytes);
    return;
  }
  const DropReason reason = claim(inlet, message, reply);
  if (reason != DropReason::None) {
    drop(reason);
  }
  auto answer = std::make_unique<EncodedPut>(
      encode(PutMessage{.kind = PutKind::Answer,
                        .path = message.path,
                        .lane = message.lane,
                        .epoch = message.epoch,
                        .lease = message.lease,
                        .writer = {},
                        .bytes = reason == DropReason::None ? 1U : 0U}));
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = [](void* request, ucs_status_t /*status*/, void* user_data) {
    delete static_cast<EncodedPut*>(user_data);
    ucp_request_free(request);
  };
  params.user_data = answer.get();
  if (UCS_PTR_IS_PTR(ucp_am_send_nbx(
          reply, kPutAnswer, answer->data(), answer->size(), nullptr, 0, &params))) {
    (void)answer.release();  // the callback's
  }
}

DropReason UcxReceiver::claim(InletState& inlet, const PutMessage& asked, ucp_ep_h reply) {
  const auto entry = inlet.is_closing ? nullptr : find(asked.lease);
  if (!entry) {
    return DropReason::UnknownLease;
  }
  // Closing this side is a fence only over lanes of which this side knows it.
  const bool is_provable = asked.path == PathKind::RdmaPut
                               ? offer_.allows_rdma && lanes_of(reply).puts_by_rdma
                               : offer_.allows_shm && asked.path == PathKind::ShmPut;
  return is_provable ? claims_.give(entry, &inlet, asked) : DropReason::Unprovable;
}

void UcxReceiver::drop(DropReason reason) {
  counters_.dropped[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void UcxReceiver::copy(const MessageHeader& header, const std::byte* data) {
  for (const BlockRun& run : header.runs()) {
    const std::size_t bytes = run.count * arena_.layout.block_bytes();
    std::memcpy(arena_.block(header.layer, run.first), data, bytes);
    data += bytes;
  }
}

void UcxReceiver::receive(InletState& inlet,
                          std::shared_ptr<LeaseEntry> entry,
                          const MessageHeader& header,
                          void* descriptor,
                          std::size_t length) {
  std::unique_ptr<Op> op;
  if (spare_.empty()) {
    op = std::make_unique<Op>();
  } else {
    op = std::move(spare_.back());
    spare_.pop_back();
  }
  op->inlet = &inlet;
  op->entry = std::move(entry);
  op->header = header;
  op->length = length;
  op->slot = active_.size();
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_DATATYPE |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv_am = &UcxReceiver::on_received;
  params.user_data = op.get();
  params.memory_type = memory_.type();
  void* buffer = nullptr;
  std::size_t count = 0;
  if (header.num_runs == 1) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = memory_.get();
    params.datatype = ucp_dt_make_contig(1);
    buffer = arena_.block(header.layer, header.run[0].first);
    count = length;
  } else {
    params.datatype = UCP_DATATYPE_IOV;
    for (std::size_t i = 0; i < header.num_runs; ++i) {
      op->parts[i].buffer = arena_.block(header.layer, header.run[i].first);
      op->parts[i].length = header.run[i].count * arena_.layout.block_bytes();
    }
    buffer = op->parts.data();
    count = header.num_runs;
  }
  Op& posted = *op;
  active_.push_back(std::move(op));
  ++inlet.receives;
  void* request = ucp_am_recv_data_nbx(inlet.worker->get(), descriptor, buffer, count, &params);
  if (UCS_PTR_IS_ERR(request)) {
    finish(posted, UCS_PTR_STATUS(request), 0);
  }
}

void UcxReceiver::on_received(void* request,
                              ucs_status_t status,
                              std::size_t length,
                              void* user_data) {
  Op& op = *static_cast<Op*>(user_data);
  op.inlet->owner->finish(op, status, length);
  ucp_request_free(request);
}

void UcxReceiver::finish(Op& op, ucs_status_t status, std::size_t length) {
  std::unique_ptr<Op> owned = std::move(active_[op.slot]);
  if (op.slot + 1 != active_.size()) {
    active_[op.slot] = std::move(active_.back());
    active_[op.slot]->slot = op.slot;
  }
  active_.pop_back();
  --owned->inlet->receives;
  const std::shared_ptr<LeaseEntry> entry = std::move(owned->entry);
  if (status == UCS_OK && length == owned->length) {
    counters_.bytes.fetch_add(length, std::memory_order_release);
    entry->session.landed(owned->header);
  } else {
    counters_.failed.fetch_add(1, std::memory_order_relaxed);
    entry->session.failed(owned->header);
  }
  spare_.push_back(std::move(owned));
  entry->notify();
}

}  // namespace baton::transfer
