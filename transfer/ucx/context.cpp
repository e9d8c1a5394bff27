#include "transfer/ucx/context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>

#include "transfer/ucx/log.h"
#include "transfer/ucx/settings.h"

namespace baton::transfer {
namespace {

Error no_lane(const TransportOptions& options, ucs_status_t status) {
  if (options.transport != "rdma") {
    return {ErrorCode::Unavailable,
            ucx_error(fmt::format("UCX finds no usable lane for transfer.transport {}",
                                  options.transport),
                      status)};
  }
  const auto devices = rdma_devices();
  return {ErrorCode::Unavailable,
          fmt::format("transport rdma was asked for, and UCX {} finds no rc, dc or ud lane{} ({}); "
                      "RDMA devices of this machine: {}. {}",
                      ucx_version_string(),
                      options.network.empty() ? "" : " on transfer.network " + options.network,
                      ucs_status_string(status),
                      devices.empty() ? "none" : fmt::format("{}", fmt::join(devices, ", ")),
                      devices.empty()
                          ? "transfer.transport tcp needs none"
                          : "Is the port up, is this UCX built with verbs, and is the device's "
                            "driver for libibverbs installed (ibverbs-providers)?")};
}

}  // namespace

std::string ucx_error(const std::string& what, ucs_status_t status) {
  return fmt::format("{}: {}", what, ucs_status_string(status));
}

std::string ucx_version_string() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  ucp_get_version(&major, &minor, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

namespace {

// UCX names the UCX_* variables that nothing has read when a process makes its first worker. A node
// makes one as late as its first peer comes: so one is made at the start, for that alone.
void name_unused_settings(ucp_context_h context) {
  ucp_worker_params_t params{};
  ucp_worker_h worker = nullptr;
  if (ucp_worker_create(context, &params, &worker) == UCS_OK) {
    ucp_worker_destroy(worker);
  }
}

}  // namespace

Result<std::unique_ptr<UcxContext>> UcxContext::create(const TransportOptions& options) {
  BATON_ASSIGN(const UcxSettings settings, context_settings(options));
  BATON_TRY(apply_environment(options));
  BATON_ASSIGN(const PutPaths paths, put_paths(options));
  redirect_ucx_log();
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) {
    return fail(ErrorCode::InvalidConfig, ucx_error("reading UCX settings", status));
  }
  for (const auto& [name, value] : settings) {
    status = ucp_config_modify(config, name.c_str(), value.c_str());
    if (status != UCS_OK) {
      ucp_config_release(config);
      return fail(ErrorCode::InvalidConfig,
                  ucx_error(fmt::format("UCX setting {}={}", name, value), status));
    }
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  // No one-sided access in general: over lanes that emulate it, a peer could write anywhere.
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  if (paths.rdma) {
    params.features |= UCP_FEATURE_RMA;
  }
  params.mt_workers_shared = 1;  // inlets are made on other threads than the reactor
  ucp_context_h context = nullptr;
  status = ucp_init(&params, config, &context);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return std::unexpected(no_lane(options, status));
  }
  static std::once_flag once;  // UCX does so too
  std::call_once(once, [context] { name_unused_settings(context); });
  return std::unique_ptr<UcxContext>(new UcxContext(context, paths));
}

UcxContext::~UcxContext() {
  if (!is_kept_) {
    ucp_cleanup(context_);
  }
}

ucs_memory_type_t memory_type(MemoryKind kind) {
  return kind == MemoryKind::Device ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
}

// The one place that keeps arenas of other memory away from what the processor does itself:
// digests, the copy of a message that came eagerly, the gathering of another layout, the mapped
// arena of shared memory.
Status UcxContext::check(MemoryKind kind) const {
  if (kind == MemoryKind::Host) {
    return {};
  }
  ucp_context_attr_t known{};
  known.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  const ucs_status_t status = ucp_context_query(context_, &known);
  if (status != UCS_OK || (known.memory_types & UCS_BIT(memory_type(kind))) == 0) {
    return fail(
        ErrorCode::Unavailable,
        fmt::format("device memory needs a UCX with a component for {} memory, which UCX {} "
                    "here has not: install one, or keep the arena in host memory",
                    ucs_memory_type_names[memory_type(kind)],
                    ucx_version_string()));
  }
  return fail(ErrorCode::Unavailable,
              "device memory needs digests, eager receives and conversion on the device, which "
              "this transport does with the processor: keep the arena in host memory");
}

Result<std::unique_ptr<UcxMemory>> UcxMemory::create(const UcxContext& context,
                                                     std::byte* base,
                                                     std::size_t bytes,
                                                     MemoryKind kind) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = base;
  params.length = bytes;
  params.memory_type = memory_type(kind);
  ucp_mem_h memory = nullptr;
  const ucs_status_t status = ucp_mem_map(context.get(), &params, &memory);
  if (status != UCS_OK) {
    return fail(
        ErrorCode::OutOfMemory,
        ucx_error(fmt::format("registering {} bytes of KV memory with UCX", bytes), status));
  }
  return std::unique_ptr<UcxMemory>(new UcxMemory(context.get(), memory, params.memory_type));
}

Result<std::vector<std::byte>> UcxMemory::pack_key() const {
  void* packed = nullptr;
  std::size_t size = 0;
  const ucs_status_t status = ucp_rkey_pack(context_, memory_, &packed, &size);
  if (status != UCS_OK) {
    return fail(ErrorCode::Unavailable, ucx_error("packing the key of the KV memory", status));
  }
  const auto* bytes = static_cast<const std::byte*>(packed);
  std::vector<std::byte> key(bytes, bytes + size);
  ucp_rkey_buffer_release(packed);
  return key;
}

UcxMemory::~UcxMemory() {
  ucp_mem_unmap(context_, memory_);
}

}  // namespace baton::transfer
