// Compiled where nccl.h is found: what nccl.h of ours says of NCCL is what its own header says.
#include <nccl.h>

#include <type_traits>

#include "kernels/cuda/nccl.h"

namespace baton::kernels::cuda {
namespace {

static_assert(NCCL_MAJOR == 2);
static_assert(NcclApi::kSuccess == static_cast<int>(ncclSuccess));
static_assert(NcclApi::kFloat32 == static_cast<int>(ncclFloat32));
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));
static_assert(std::is_same_v<ncclComm_t, ncclComm*> && std::is_pointer_v<cudaStream_t>);
static_assert(
    std::is_same_v<decltype(&ncclCommInitAll), ncclResult_t (*)(ncclComm**, int, const int*)>);
static_assert(std::is_same_v<decltype(&ncclCommDestroy), ncclResult_t (*)(ncclComm*)>);
static_assert(std::is_same_v<decltype(&ncclGroupStart), ncclResult_t (*)()>);
static_assert(std::is_same_v<decltype(&ncclGroupEnd), ncclResult_t (*)()>);
static_assert(
    std::is_same_v<decltype(&ncclAllGather),
                   ncclResult_t (*)(
                       const void*, void*, std::size_t, ncclDataType_t, ncclComm*, cudaStream_t)>);
static_assert(std::is_same_v<
              decltype(&ncclBroadcast),
              ncclResult_t (*)(
                  const void*, void*, std::size_t, ncclDataType_t, int, ncclComm*, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclGetErrorString), const char* (*)(ncclResult_t)>);

}  // namespace
}  // namespace baton::kernels::cuda
