#include "transfer/ucx/data_path.h"

namespace baton::transfer {

PathCaps caps_of(PathKind path) {
  switch (path) {
    case PathKind::Am:
      return {.fences_on_close = true, .needs_target_progress = true, .has_checked_writes = true};
    case PathKind::RdmaPut:
      // Without its queue pair a device writes nothing.
      return {.fences_on_close = true, .needs_target_progress = false, .has_checked_writes = false};
    case PathKind::ShmPut:
      // A mapping outlives every connection.
      return {
          .fences_on_close = false, .needs_target_progress = false, .has_checked_writes = false};
  }
  return {};
}

void DataPath::check(Send& send, ucs_status_t status) {
  if (status != UCS_OK) {
    context_.counters.failed.fetch_add(1, std::memory_order_relaxed);
    send.entry.session.fail(Error{ErrorCode::PeerDead, ucx_error("sending to the peer", status)});
  }
}

void DataPath::flush_link(const std::shared_ptr<Send>& send) {
  Op& op = context_.ops.make(*this, Op::Kind::Flush, send->link, send);
  ucp_request_param_t params{};
  UcxOps::set_callback(params, op);
  context_.ops.posted(op, ucp_ep_flush_nbx(send->link->endpoint->get(), &params));
}

}  // namespace baton::transfer
