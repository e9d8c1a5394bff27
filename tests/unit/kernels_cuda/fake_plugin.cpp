// Stands for libbaton_cuda.so: makes the reference backend, and knows no device 7. Built once as
// the program expects it (FAKE_BUILD undefined) and once as of another build.
#include "kernels/cuda/plugin.h"

extern "C" const char* baton_cuda_build() {
#ifdef FAKE_BUILD
  return FAKE_BUILD;
#else
  return baton::kernels::kCudaBuild;
#endif
}

extern "C" baton::Result<std::unique_ptr<baton::kernels::Backend>> baton_cuda_make_backend(
    const baton::kernels::CudaOptions& options) {
  if (options.device == 7) {
    return baton::fail(baton::ErrorCode::Unavailable, "no device 7");
  }
  return baton::kernels::make_reference_backend();
}
