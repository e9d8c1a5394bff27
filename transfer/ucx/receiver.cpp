#include "transfer/ucx/receiver.h"

#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace baton::transfer {

// One receive under way; UCX holds a pointer to it until its callback ran.
struct UcxReceiver::Op {
  UcxReceiver* owner = nullptr;
  std::shared_ptr<LeaseEntry> entry;
  MessageHeader header;
  std::size_t length = 0;
  std::array<ucp_dt_iov_t, kMaxRuns> parts;  // places of the runs
  std::size_t slot = 0;                      // in active_
};

UcxReceiver::UcxReceiver(const KvArenaView& arena) : arena_(arena) {}
UcxReceiver::~UcxReceiver() = default;

void UcxReceiver::attach(ucp_worker_h worker, ucp_mem_h memory) {
  worker_ = worker;
  memory_ = memory;
}

std::shared_ptr<LeaseEntry> UcxReceiver::open(LeaseId lease,
                                              Epoch epoch,
                                              std::vector<BlockRun> runs) {
  auto entry = std::make_shared<LeaseEntry>(lease, epoch, arena_, std::move(runs));
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

void UcxReceiver::revoke_all() {
  std::unordered_map<LeaseId, std::shared_ptr<LeaseEntry>> leases;
  {
    const std::lock_guard lock(mutex_);
    leases = std::exchange(leases_, {});
  }
  for (const auto& [id, entry] : leases) {
    entry->revoke(nullptr);
  }
}

void UcxReceiver::abandon() {
  while (!active_.empty()) {
    finish(*active_.back(), UCS_ERR_CANCELED, 0);
  }
}

ucs_status_t UcxReceiver::on_message(void* arg,
                                     const void* header,
                                     std::size_t header_length,
                                     void* data,
                                     std::size_t length,
                                     const ucp_am_recv_param_t* param) {
  return static_cast<UcxReceiver*>(arg)->handle(
      {static_cast<const std::byte*>(header), header_length},
      data,
      length,
      (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}

ucs_status_t UcxReceiver::handle(std::span<const std::byte> header_bytes,
                                 void* data,
                                 std::size_t length,
                                 bool is_rendezvous) {
  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  MessageHeader header;
  if (!decode(header_bytes, header)) {
    drop(DropReason::Malformed);
    return UCS_OK;
  }
  auto entry = find(header.lease);
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
    receive(std::move(entry), header, data, length);
    return UCS_INPROGRESS;
  }
  copy(header, static_cast<const std::byte*>(data));
  counters_.bytes.fetch_add(length, std::memory_order_relaxed);
  entry->session.landed(header);
  entry->notify();
  return UCS_OK;
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

void UcxReceiver::receive(std::shared_ptr<LeaseEntry> entry,
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
  op->owner = this;
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
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  void* buffer = nullptr;
  std::size_t count = 0;
  if (header.num_runs == 1) {
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    params.memh = memory_;
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
  void* request = ucp_am_recv_data_nbx(worker_, descriptor, buffer, count, &params);
  if (UCS_PTR_IS_ERR(request)) {
    finish(posted, UCS_PTR_STATUS(request), 0);
  }
}

void UcxReceiver::on_received(void* request,
                              ucs_status_t status,
                              std::size_t length,
                              void* user_data) {
  Op& op = *static_cast<Op*>(user_data);
  op.owner->finish(op, status, length);
  ucp_request_free(request);
}

void UcxReceiver::finish(Op& op, ucs_status_t status, std::size_t length) {
  std::unique_ptr<Op> owned = std::move(active_[op.slot]);
  if (op.slot + 1 != active_.size()) {
    active_[op.slot] = std::move(active_.back());
    active_[op.slot]->slot = op.slot;
  }
  active_.pop_back();
  const std::shared_ptr<LeaseEntry> entry = std::move(owned->entry);
  if (status == UCS_OK && length == owned->length) {
    counters_.bytes.fetch_add(length, std::memory_order_relaxed);
    entry->session.landed(owned->header);
  } else {
    counters_.failed.fetch_add(1, std::memory_order_relaxed);
    entry->session.failed(owned->header);
  }
  spare_.push_back(std::move(owned));
  entry->notify();
}

}  // namespace baton::transfer
