#include "transfer/ucx/ops.h"

#include <utility>

#include "transfer/ucx/data_path.h"

namespace baton::transfer {
namespace {

// Buffers for gathered bytes that are kept for the next message.
constexpr std::size_t kMaxSpareStaged = std::size_t{8} << 20;

}  // namespace

Op& UcxOps::make(DataPath& path, Op::Kind kind, const LinkPtr& link, std::shared_ptr<Send> send) {
  std::unique_ptr<Op> op;
  if (spare_.empty()) {
    op = std::make_unique<Op>();
    op->owner = this;
  } else {
    op = std::move(spare_.back());
    spare_.pop_back();
    spare_staged_ -= op->staged.capacity();
  }
  op->path = &path;
  op->kind = kind;
  op->link = link;
  op->send = std::move(send);
  op->bytes = 0;
  op->slot = active_.size();
  ++link->operations;
  active_.push_back(std::move(op));
  return *active_.back();
}

void UcxOps::set_callback(ucp_request_param_t& params, Op& op) {
  params.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &UcxOps::on_over;
  params.user_data = &op;
}

void UcxOps::posted(Op& op, ucs_status_ptr_t request) {
  if (!UCS_PTR_IS_PTR(request)) {
    finish(op, UCS_PTR_STATUS(request));  // over already, or refused
  }
}

void UcxOps::on_over(void* request, ucs_status_t status, void* user_data) {
  Op& op = *static_cast<Op*>(user_data);
  op.owner->finish(op, status);
  ucp_request_free(request);
}

void UcxOps::finish(Op& op, ucs_status_t status) {
  std::unique_ptr<Op> owned = std::move(active_[op.slot]);
  if (op.slot + 1 != active_.size()) {
    active_[op.slot] = std::move(active_.back());
    active_[op.slot]->slot = op.slot;
  }
  active_.pop_back();
  --owned->link->operations;
  owned->path->on_over(*owned, status);
  owned->link.reset();
  owned->send.reset();
  owned->batch.reset();
  if (spare_staged_ + owned->staged.capacity() > kMaxSpareStaged) {
    owned->staged = std::vector<std::byte>();
  }
  spare_staged_ += owned->staged.capacity();
  spare_.push_back(std::move(owned));
}

void UcxOps::abandon(const Link& link) {
  for (std::size_t i = active_.size(); i-- > 0;) {
    if (i < active_.size() && active_[i]->link.get() == &link) {
      finish(*active_[i], UCS_ERR_CANCELED);  // moves the last one here
    }
  }
}

}  // namespace baton::transfer
