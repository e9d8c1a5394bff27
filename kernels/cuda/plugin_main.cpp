// What libbaton_cuda.so shows: the functions of plugin.h.
#include <memory>
#include <utility>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/nvidia_device.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/self_check.h"

using baton::Result;
using baton::kernels::Backend;
using baton::kernels::CudaOptions;

namespace {

Result<std::unique_ptr<Backend>> make(const CudaOptions& options) {
  namespace cuda = baton::kernels::cuda;
  BATON_ASSIGN(auto device, cuda::open_device(options.device));
  BATON_ASSIGN(
      auto backend,
      cuda::make_backend(std::move(device), baton::kernels::cpu::ThreadPool::usable_cores()));
  BATON_TRY(cuda::self_check(*backend));
  return backend;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* baton_cuda_build() {
  return baton::kernels::kCudaBuild;
}

extern "C" __attribute__((visibility("default"))) Result<std::unique_ptr<Backend>>
baton_cuda_make_backend(const CudaOptions& options) {
  return make(options);
}
