// A UCX context and the arena registered with it.
//
// Owner: UcxTransport; outlives every worker made from it. Thread: const after creation. Failure:
// creating one names what UCX refused.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "transfer/transport.h"
#include "transfer/ucx/settings.h"

namespace baton::transfer {

// "NAME: UCX's own words": the message of every UCX error.
std::string ucx_error(const std::string& what, ucs_status_t status);
// The version of the library really loaded.
std::string ucx_version_string();

class UcxContext {
 public:
  static Result<std::unique_ptr<UcxContext>> create(const TransportOptions& options);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h get() const { return context_; }
  bool allows_rdma_put() const { return paths_.rdma; }
  bool allows_shm_put() const { return paths_.shm; }
  // Unavailable: an arena of this kind cannot be sent or received. Asked before the arena is
  // registered: a UCX that lacks the component registers device memory as if it were the host's.
  Status check(MemoryKind kind) const;
  // A worker of it could not be destroyed (UcxWorker::abandon): it stays until the process ends.
  void keep() { is_kept_ = true; }

 private:
  UcxContext(ucp_context_h context, PutPaths paths) : context_(context), paths_(paths) {}
  ucp_context_h context_;
  const PutPaths paths_;
  std::atomic<bool> is_kept_ = false;
};

ucs_memory_type_t memory_type(MemoryKind kind);

// Memory known to a context, so that operations need no look-up.
class UcxMemory {
 public:
  // `context` and the memory outlive this.
  static Result<std::unique_ptr<UcxMemory>> create(const UcxContext& context,
                                                   std::byte* base,
                                                   std::size_t bytes,
                                                   MemoryKind kind);
  ~UcxMemory();
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;

  ucp_mem_h get() const { return memory_; }
  // What operations on it say that it is.
  ucs_memory_type_t type() const { return type_; }
  // What another process needs to write here one-sidedly.
  Result<std::vector<std::byte>> pack_key() const;

 private:
  UcxMemory(ucp_context_h context, ucp_mem_h memory, ucs_memory_type_t type)
      : context_(context), memory_(memory), type_(type) {}
  ucp_context_h context_;
  ucp_mem_h memory_;
  const ucs_memory_type_t type_;
};

}  // namespace baton::transfer
