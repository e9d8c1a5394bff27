// Loads the backend of NVIDIA GPUs. Its code is a library of its own, libbaton_cuda.so, opened when
// it is asked for: programs start, and say why there is no GPU, on machines that have neither
// driver nor toolkit.
//
// Thread: any. Failure: Unavailable with a sentence that names the first thing that is missing: the
// library, the driver, a library that it needs, or what the library itself finds lacking (a device,
// a compute capability).
#pragma once

#include <string>

#include "common/base/error.h"
#include "kernels/ops.h"

namespace baton::kernels {

struct CudaPlaces {
  std::string library;                  // path of libbaton_cuda.so
  std::string driver = "libcuda.so.1";  // the driver's library, which comes with the kernel module

  // As `make_cuda_backends` looks: in the folder of the running program.
  static CudaPlaces beside_program();
};

Result<Backends> load_cuda_backends(const CudaOptions& options, const CudaPlaces& places);

// What the library defines, by these names. It and the program are of one build: they hand each
// other C++ values.
inline constexpr char kCudaBuildSymbol[] = "baton_cuda_build";
inline constexpr char kCudaMakeSymbol[] = "baton_cuda_make_backends";
using CudaBuild = const char* (*)();
using CudaMake = Result<Backends> (*)(const CudaOptions&);

// Equal where program and library may talk. The number is raised with every change of what they
// share: `Backend` and the types in its functions.
inline constexpr char kCudaBuild[] = "3, compiler " __VERSION__;

}  // namespace baton::kernels
