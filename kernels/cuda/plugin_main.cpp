// What libbaton_cuda.so shows: the functions of plugin.h.
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/nccl_ranks.h"
#include "kernels/cuda/nvidia_device.h"
#include "kernels/cuda/plugin.h"
#include "kernels/cuda/self_check.h"

using baton::Result;
using baton::kernels::Backends;
using baton::kernels::CudaOptions;

namespace {

constexpr char kNccl[] = "libnccl.so.2";

Result<Backends> make(const CudaOptions& options) {
  namespace cuda = baton::kernels::cuda;
  std::vector<std::unique_ptr<cuda::Device>> devices;
  std::vector<int> numbers;
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    BATON_ASSIGN(auto device, cuda::open_device(options.device + rank));
    devices.push_back(std::move(device));
    numbers.push_back(static_cast<int>(options.device + rank));
  }
  std::vector<std::unique_ptr<cuda::NcclRank>> ranks(1);
  if (options.ranks > 1) {
    BATON_ASSIGN(const cuda::NcclApi nccl, cuda::NcclApi::open(kNccl));
    BATON_ASSIGN(ranks, cuda::join_ranks(nccl, numbers));
  }
  Backends out;
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    BATON_ASSIGN(auto backend,
                 cuda::make_backend(std::move(devices[rank]),
                                    baton::kernels::cpu::ThreadPool::usable_cores(),
                                    std::move(ranks[rank]),
                                    options.record_steps));
    BATON_TRY(cuda::self_check(*backend));
    out.push_back(std::move(backend));
  }
  return out;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* baton_cuda_build() {
  return baton::kernels::kCudaBuild;
}

extern "C" __attribute__((visibility("default"))) Result<Backends> baton_cuda_make_backends(
    const CudaOptions& options) {
  return make(options);
}
