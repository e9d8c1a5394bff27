// A UCX endpoint: the connection from the own worker to another process's worker.
//
// Owner: a Link of the sender. Thread: the reactor. Failure: the peer's death runs `lost` once,
// inside progress: note it and act after progress returns. Operations end with an error then.
#pragma once

#include <ucp/api/ucp.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/error.h"
#include "transfer/message.h"
#include "transfer/ucx/worker.h"

namespace baton::transfer {

class UcxEndpoint {
 public:
  // `address` as open_address gave it.
  static Result<std::unique_ptr<UcxEndpoint>> create(const UcxWorker& worker,
                                                     std::span<const std::byte> address,
                                                     std::function<void(ucs_status_t)> lost);
  // REQUIRES: closed, or its worker is about to be destroyed.
  ~UcxEndpoint() = default;
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  ucp_ep_h get() const { return endpoint_; }
  // Starts closing: by force, operations end as cancelled; else they end first. Returns a request
  // to wait for, or null when it is closed. No other call may follow.
  void* close(bool force);

 private:
  UcxEndpoint() = default;
  static void on_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);

  ucp_ep_h endpoint_ = nullptr;
  std::function<void(ucs_status_t)> lost_;
};

// What an endpoint's lanes are, read from UCX's own description of it.
struct EndpointLanes {
  Lane bulk = Lane::Unknown;  // carries bulk bytes
  bool puts_by_rdma = false;  // there are lanes for one-sided writes, and all of them are rc or dc
};
EndpointLanes lanes_of(ucp_ep_h endpoint);
// The same from the text of ucp_ep_print_info.
EndpointLanes parse_lanes(const std::string& info);

}  // namespace baton::transfer
