#include "bench/transfer/raw_ucx.h"

#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <cstring>
#include <span>
#include <vector>

#include "transfer/ucx/context.h"
#include "transfer/ucx/endpoint.h"
#include "transfer/ucx/worker.h"

namespace baton::bench {
namespace {

using transfer::UcxContext;
using transfer::UcxEndpoint;
using transfer::UcxMemory;
using transfer::UcxWorker;

class RawAm final : public RawUcx {
 public:
  explicit RawAm(KvArenaView arena) : arena_(arena) {}

  Status start(const std::string& transport) {
    transfer::TransportOptions options;
    options.transport = transport;
    BATON_ASSIGN(context_, UcxContext::create(options));
    BATON_ASSIGN(memory_,
                 UcxMemory::create(*context_, arena_.base, arena_.bytes(), options.memory));
    BATON_ASSIGN(worker_, UcxWorker::create(*context_));
    return worker_->set_message_handler(transfer::kDataMessage, &RawAm::on_message, this);
  }

  Result<std::string> address() const override {
    return to_hex(worker_->address().data(), worker_->address().size());
  }

  Status connect(const std::string& address) override {
    const std::string bytes = from_hex(address);
    BATON_ASSIGN(const transfer::PeerAddress peer,
                 transfer::open_address(std::as_bytes(std::span(bytes))));
    BATON_ASSIGN(endpoint_, UcxEndpoint::create(*worker_, peer.ucx, [this](ucs_status_t) {
                   is_lost_ = true;
                 }));
    return {};
  }

  Status send(std::uint32_t count, std::size_t window) override {
    const std::size_t bytes = arena_.layout.block_bytes();
    headers_.resize(count);
    for (std::uint32_t i = 0; i < count && !is_lost_; ++i) {
      while (outstanding_ > 0 && outstanding_ + bytes > window && !is_lost_) {
        worker_->progress();
      }
      headers_[i] = i;
      ucp_request_param_t params{};
      params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                            UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
      params.cb.send = &RawAm::on_sent;
      params.user_data = this;
      params.memory_type = UCS_MEMORY_TYPE_HOST;
      params.memh = memory_->get();
      void* request = ucp_am_send_nbx(endpoint_->get(),
                                      transfer::kDataMessage,
                                      &headers_[i],
                                      sizeof(headers_[i]),
                                      arena_.block(0, BlockId{i}),
                                      bytes,
                                      &params);
      if (UCS_PTR_IS_ERR(request)) {
        return fail(ErrorCode::PeerDead, transfer::ucx_error("send", UCS_PTR_STATUS(request)));
      }
      if (request != nullptr) {
        outstanding_ += bytes;
      }
    }
    while (outstanding_ > 0 && !is_lost_) {
      worker_->progress();
    }
    ucp_request_param_t params{};
    void* flush = ucp_ep_flush_nbx(endpoint_->get(), &params);
    if (UCS_PTR_IS_PTR(flush)) {
      while (ucp_request_check_status(flush) == UCS_INPROGRESS) {
        worker_->progress();
      }
      ucp_request_free(flush);
    }
    if (is_lost_) {
      return fail(ErrorCode::PeerDead, "the peer is gone");
    }
    return {};
  }

  void receive(std::uint32_t count) override {
    while (landed_ < count) {
      worker_->progress();
    }
    landed_ -= count;
  }

  void progress() override { worker_->progress(); }

 private:
  static void on_sent(void* request, ucs_status_t /*status*/, void* user_data) {
    auto* self = static_cast<RawAm*>(user_data);
    self->outstanding_ -= self->arena_.layout.block_bytes();
    ucp_request_free(request);
  }

  static void on_received(void* request,
                          ucs_status_t /*status*/,
                          std::size_t /*length*/,
                          void* user_data) {
    ++static_cast<RawAm*>(user_data)->landed_;
    ucp_request_free(request);
  }

  static ucs_status_t on_message(void* arg,
                                 const void* header,
                                 std::size_t /*header_length*/,
                                 void* data,
                                 std::size_t length,
                                 const ucp_am_recv_param_t* param) {
    auto* self = static_cast<RawAm*>(arg);
    std::uint32_t index = 0;
    std::memcpy(&index, header, sizeof(index));
    std::byte* place = self->arena_.block(0, BlockId{index});
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      std::memcpy(place, data, length);
      ++self->landed_;
      return UCS_OK;
    }
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH |
                          UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv_am = &RawAm::on_received;
    params.user_data = self;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    params.memh = self->memory_->get();
    ucp_am_recv_data_nbx(self->worker_->get(), data, place, length, &params);
    return UCS_INPROGRESS;
  }

  const KvArenaView arena_;
  std::unique_ptr<UcxContext> context_;
  std::unique_ptr<UcxMemory> memory_;
  std::unique_ptr<UcxWorker> worker_;
  std::unique_ptr<UcxEndpoint> endpoint_;
  std::vector<std::uint32_t> headers_;
  std::size_t outstanding_ = 0;
  std::uint32_t landed_ = 0;
  bool is_lost_ = false;
};

}  // namespace

std::string to_hex(const void* bytes, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) {
    out += fmt::format("{:02x}", static_cast<const unsigned char*>(bytes)[i]);
  }
  return out;
}

std::string from_hex(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return out;
}

Result<std::unique_ptr<RawUcx>> make_raw_am(const std::string& transport, KvArenaView arena) {
  auto raw = std::make_unique<RawAm>(arena);
  BATON_TRY(raw->start(transport));
  return raw;
}

}  // namespace baton::bench
