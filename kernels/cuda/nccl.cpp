#include "kernels/cuda/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <type_traits>

namespace baton::kernels::cuda {

Result<NcclApi> NcclApi::open(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const text = ::dlerror();
    return fail(
        ErrorCode::Unavailable,
        fmt::format("no CUDA: ranks on several GPUs need NCCL ({}); install NVIDIA's package "
                    "libnccl2, or get it by tools/setup-cuda and build again",
                    text == nullptr ? library : text));
  }
  NcclApi api;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (function == nullptr && missing.empty()) {
      missing = name;
    }
  };
  find(api.comm_init_all, "ncclCommInitAll");
  find(api.comm_destroy, "ncclCommDestroy");
  find(api.group_start, "ncclGroupStart");
  find(api.group_end, "ncclGroupEnd");
  find(api.all_gather, "ncclAllGather");
  find(api.broadcast, "ncclBroadcast");
  find(api.error_string, "ncclGetErrorString");
  if (!missing.empty()) {
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: {} has no {}: it is no NCCL of version 2", library, missing));
  }
  return api;
}

}  // namespace baton::kernels::cuda
