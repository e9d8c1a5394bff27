// Puts, in a context of their own: the transport's own has no one-sided access.
#include <fmt/format.h>
#include <ucp/api/ucp.h>

#include <sstream>

#include "bench/transfer/raw_ucx.h"
#include "transfer/ucx/context.h"
#include "transfer/ucx/settings.h"

namespace baton::bench {
namespace {

Status check(const char* what, ucs_status_t status) {
  return status == UCS_OK ? Status{}
                          : fail(ErrorCode::Unavailable, transfer::ucx_error(what, status));
}

class RawPut final : public RawUcx {
 public:
  explicit RawPut(KvArenaView arena) : arena_(arena) {}
  RawPut(const RawPut&) = delete;
  RawPut& operator=(const RawPut&) = delete;

  ~RawPut() override {
    if (key_ != nullptr) {
      ucp_rkey_destroy(key_);
    }
    if (endpoint_ != nullptr) {
      ucp_request_param_t params{};
      params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      params.flags = UCP_EP_CLOSE_FLAG_FORCE;
      wait(ucp_ep_close_nbx(endpoint_, &params));
    }
    if (memory_ != nullptr) {
      ucp_mem_unmap(context_, memory_);
    }
    if (worker_ != nullptr) {
      ucp_worker_destroy(worker_);
    }
    if (context_ != nullptr) {
      ucp_cleanup(context_);
    }
  }

  Status start(const std::string& transport) {
    transfer::TransportOptions options;
    options.transport = transport;
    BATON_ASSIGN(const transfer::UcxSettings settings, transfer::context_settings(options));
    BATON_TRY(transfer::apply_environment(options));
    ucp_config_t* config = nullptr;
    BATON_TRY(check("reading UCX settings", ucp_config_read(nullptr, nullptr, &config)));
    for (const auto& [name, value] : settings) {
      ucp_config_modify(config, name.c_str(), value.c_str());
    }
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA;
    const ucs_status_t status = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    BATON_TRY(check("a context for puts", status));
    ucp_mem_map_params_t memory{};
    memory.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                        UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    memory.address = arena_.base;
    memory.length = arena_.bytes();
    memory.memory_type = UCS_MEMORY_TYPE_HOST;
    BATON_TRY(check("registering memory for puts", ucp_mem_map(context_, &memory, &memory_)));
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    return check("a worker for puts", ucp_worker_create(context_, &worker, &worker_));
  }

  Result<std::string> address() const override {
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    BATON_TRY(check("the worker's address", ucp_worker_get_address(worker_, &address, &length)));
    std::string text = to_hex(address, length);
    ucp_worker_release_address(worker_, address);
    void* key = nullptr;
    BATON_TRY(check("packing a key", ucp_rkey_pack(context_, memory_, &key, &length)));
    text += ':' + to_hex(key, length) +
            fmt::format(":{}", reinterpret_cast<std::uintptr_t>(arena_.base));
    ucp_rkey_buffer_release(key);
    return text;
  }

  Status connect(const std::string& address) override {
    std::istringstream words(address);
    std::string worker;
    std::string key;
    std::getline(words, worker, ':');
    std::getline(words, key, ':');
    words >> base_;
    worker = from_hex(worker);
    key = from_hex(key);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(worker.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = &RawPut::on_error;
    params.err_handler.arg = this;
    BATON_TRY(check("an endpoint for puts", ucp_ep_create(worker_, &params, &endpoint_)));
    return check("unpacking a key", ucp_ep_rkey_unpack(endpoint_, key.data(), &key_));
  }

  Status send(std::uint32_t count, std::size_t window) override {
    const std::size_t bytes = arena_.layout.block_bytes();
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                          UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
    params.cb.send = &RawPut::on_sent;
    params.user_data = this;
    params.memory_type = UCS_MEMORY_TYPE_HOST;
    params.memh = memory_;
    for (std::uint32_t i = 0; i < count && status_ == UCS_OK; ++i) {
      while (outstanding_ > 0 && outstanding_ + bytes > window && status_ == UCS_OK) {
        progress();
      }
      const std::byte* place = arena_.block(0, BlockId{i});
      void* request = ucp_put_nbx(endpoint_,
                                  place,
                                  bytes,
                                  base_ + static_cast<std::uint64_t>(place - arena_.base),
                                  key_,
                                  &params);
      if (UCS_PTR_IS_ERR(request)) {
        return check("put", UCS_PTR_STATUS(request));
      }
      outstanding_ += request != nullptr ? bytes : 0;
    }
    while (outstanding_ > 0 && status_ == UCS_OK) {
      progress();
    }
    ucp_request_param_t flush{};
    wait(ucp_ep_flush_nbx(endpoint_, &flush));
    return check("puts", status_);
  }

  void receive(std::uint32_t /*count*/) override {}
  void progress() override { ucp_worker_progress(worker_); }

 private:
  static void on_sent(void* request, ucs_status_t status, void* user_data) {
    auto* self = static_cast<RawPut*>(user_data);
    self->outstanding_ -= self->arena_.layout.block_bytes();
    if (status != UCS_OK) {
      self->status_ = status;
    }
    ucp_request_free(request);
  }

  static void on_error(void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) {
    static_cast<RawPut*>(arg)->status_ = status;
  }

  void wait(void* request) {
    if (UCS_PTR_IS_PTR(request)) {
      while (ucp_request_check_status(request) == UCS_INPROGRESS) {
        progress();
      }
      ucp_request_free(request);
    }
  }

  const KvArenaView arena_;
  ucp_context_h context_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::uint64_t base_ = 0;  // of the target's arena
  std::size_t outstanding_ = 0;
  ucs_status_t status_ = UCS_OK;
};

}  // namespace

Result<std::unique_ptr<RawUcx>> make_raw_put(const std::string& transport, KvArenaView arena) {
  auto raw = std::make_unique<RawPut>(arena);
  BATON_TRY(raw->start(transport));
  return raw;
}

}  // namespace baton::bench
