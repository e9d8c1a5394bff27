// What Baton calls of NVIDIA's collective library, NCCL. The library is opened when ranks on
// several GPUs ask for it, so that a plug-in starts where it is not installed. Numbers and types
// are those of nccl.h, version 2 (nccl_abi.cpp compares where that header is found).
//
// Source: NCCL 2 user guide, API.
//
// Thread: a plain value; NCCL's own rules hold for its calls. Failure: `open` gives Unavailable
// that names the library, or the function it lacks.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/error.h"

extern "C" struct ncclComm;

namespace baton::kernels::cuda {

struct NcclApi {
  static constexpr int kSuccess = 0;  // of ncclResult_t
  static constexpr int kFloat32 = 7;  // of ncclDataType_t

  int (*comm_init_all)(ncclComm** comms, int count, const int* devices) = nullptr;
  int (*comm_destroy)(ncclComm* comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_gather)(const void* from,
                    void* to,
                    std::size_t count,  // a rank
                    int type,
                    ncclComm* comm,
                    void* stream) = nullptr;
  int (*broadcast)(const void* from,
                   void* to,
                   std::size_t count,
                   int type,
                   int root,
                   ncclComm* comm,
                   void* stream) = nullptr;
  const char* (*error_string)(int result) = nullptr;

  // The library stays open as long as the process lives.
  static Result<NcclApi> open(const std::string& library);
};

}  // namespace baton::kernels::cuda
