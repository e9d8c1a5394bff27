#include "transfer/ucx/endpoint.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace baton::transfer {

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

Lane UcxEndpoint::lane() const {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  if (stream == nullptr) {
    return Lane::Unknown;
  }
  ucp_ep_print_info(endpoint_, stream);
  std::fclose(stream);
  const std::string info(text, size);
  std::free(text);  // NOLINT: open_memstream allocates with malloc
  return parse_lane(info);
}

void* UcxEndpoint::close(bool force) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  void* request = ucp_ep_close_nbx(endpoint_, &params);
  return UCS_PTR_IS_PTR(request) ? request : nullptr;
}

// A lane's line: "lane[0]:  3:sysv/memory.0 md[2] -> md[2]/sysv/sysdev[255] am am_bw#0 keepalive".
// Bulk bytes go by the first lane marked rma_bw#0, else am_bw#0, else am.
Lane parse_lane(const std::string& info) {
  std::string best;
  int best_rank = 0;
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
    int rank = 0;
    for (std::string word; words >> word;) {
      rank = std::max(rank, word == "rma_bw#0" ? 3 : word == "am_bw#0" ? 2 : word == "am" ? 1 : 0);
    }
    if (rank > best_rank) {
      const auto colon = resource.find(':');
      const auto slash = resource.find('/');
      if (colon != std::string::npos && slash != std::string::npos && slash > colon) {
        best = resource.substr(colon + 1, slash - colon - 1);
        best_rank = rank;
      }
    }
  }
  const auto starts = [&](std::string_view prefix) { return best.starts_with(prefix); };
  if (starts("tcp")) {
    return Lane::Tcp;
  }
  if (starts("posix") || starts("sysv") || starts("cma") || starts("xpmem") || starts("knem")) {
    return Lane::Shm;
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

}  // namespace baton::transfer
