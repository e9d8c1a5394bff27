// Stands for libbaton_cuda.so: makes reference backends, and knows no device 7. Built once as
// the program expects it (FAKE_BUILD undefined) and once as of another build.
#include "kernels/cuda/plugin.h"

extern "C" const char* baton_cuda_build() {
#ifdef FAKE_BUILD
  return FAKE_BUILD;
#else
  return baton::kernels::kCudaBuild;
#endif
}

extern "C" baton::Result<baton::kernels::Backends> baton_cuda_make_backends(
    const baton::kernels::CudaOptions& options) {
  if (options.device == 7) {
    return baton::fail(baton::ErrorCode::Unavailable, "no device 7");
  }
  baton::kernels::Backends out;
  for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
    out.push_back(baton::kernels::make_reference_backend());
  }
  return out;
}
