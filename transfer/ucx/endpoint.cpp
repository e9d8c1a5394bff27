#include "transfer/ucx/endpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace baton::transfer {
namespace {

// `transport` as UCX calls it.
Lane lane_of(std::string_view transport) {
  const auto starts = [&](std::string_view prefix) { return transport.starts_with(prefix); };
  if (starts("tcp")) {
    return Lane::Tcp;
  }
  if (starts("posix") || starts("sysv") || starts("cma") || starts("xpmem") || starts("knem")) {
    return Lane::Shm;
  }
  if (starts("rc_mlx5")) {
    return Lane::RcMlx5;
  }
  if (starts("rc")) {
    return Lane::Rc;
  }
  if (starts("dc")) {
    return Lane::Dc;
  }
  if (starts("ud")) {
    return Lane::Ud;
  }
  if (starts("self")) {
    return Lane::Self;
  }
  return Lane::Unknown;
}

// The network device itself writes, and stops when the queue pair is gone.
bool is_rdma(Lane lane) {
  return lane == Lane::Rc || lane == Lane::RcMlx5 || lane == Lane::Dc;
}

}  // namespace

Result<std::unique_ptr<UcxEndpoint>> UcxEndpoint::create(const UcxWorker& worker,
                                                         std::span<const std::byte> address,
                                                         std::function<void(ucs_status_t)> lost) {
  std::unique_ptr<UcxEndpoint> self(new UcxEndpoint);
  self->lost_ = std::move(lost);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxEndpoint::on_error;
  params.err_handler.arg = self.get();
  const ucs_status_t status = ucp_ep_create(worker.get(), &params, &self->endpoint_);
  if (status != UCS_OK) {
    return fail(ErrorCode::PeerDead, ucx_error("connecting to the peer's UCX worker", status));
  }
  return self;
}

void UcxEndpoint::on_error(void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto* self = static_cast<UcxEndpoint*>(arg);
  if (self->lost_) {
    self->lost_(status);
  }
}

void* UcxEndpoint::close(bool force) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  void* request = ucp_ep_close_nbx(endpoint_, &params);
  return UCS_PTR_IS_PTR(request) ? request : nullptr;
}

EndpointLanes lanes_of(ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  if (stream == nullptr) {
    return {};
  }
  ucp_ep_print_info(endpoint, stream);
  std::fclose(stream);
  const std::string info(text, size);
  std::free(text);  // NOLINT: open_memstream allocates with malloc
  return parse_lanes(info);
}

// A lane's line: "lane[0]:  3:sysv/memory.0 md[2] -> md[2]/sysv/sysdev[255] am am_bw#0 keepalive".
// Bulk bytes go by the first lane marked rma_bw#0, else am_bw#0, else am; a put may take any that
// is marked rma#… or rma_bw#….
EndpointLanes parse_lanes(const std::string& info) {
  EndpointLanes lanes;
  int best_rank = 0;
  bool has_put_lane = false;
  bool has_other_put_lane = false;
  std::istringstream lines(info);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("lane[");
    if (at == std::string::npos) {
      continue;
    }
    std::istringstream words(line.substr(at));
    std::string label;
    std::string resource;  // index:transport/device
    words >> label >> resource;
    const auto colon = resource.find(':');
    const auto slash = resource.find('/');
    if (colon == std::string::npos || slash == std::string::npos || slash < colon) {
      continue;
    }
    const Lane lane = lane_of(resource.substr(colon + 1, slash - colon - 1));
    int rank = 0;
    bool puts = false;
    for (std::string word; words >> word;) {
      rank = std::max(rank, word == "rma_bw#0" ? 3 : word == "am_bw#0" ? 2 : word == "am" ? 1 : 0);
      puts |= word.starts_with("rma#") || word.starts_with("rma_bw#");
    }
    if (rank > best_rank) {
      lanes.bulk = lane;
      best_rank = rank;
    }
    if (puts) {
      (is_rdma(lane) ? has_put_lane : has_other_put_lane) = true;
    }
  }
  lanes.puts_by_rdma = has_put_lane && !has_other_put_lane;
  return lanes;
}

}  // namespace baton::transfer
