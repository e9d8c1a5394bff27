#include "kernels/cuda/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace baton::kernels {
namespace {

constexpr std::string_view kLibraryName = "libbaton_cuda.so";

// Null when the name is unknown. The library is never closed: what it makes is its code.
template <class Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

std::string last_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "unknown error" : text;
}

}  // namespace

CudaPlaces CudaPlaces::beside_program() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return {.library = (program.parent_path() / kLibraryName).string()};
}

Result<Backends> load_cuda_backends(const CudaOptions& options, const CudaPlaces& places) {
  std::error_code ignored;
  if (!std::filesystem::exists(places.library, ignored)) {
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: {} was not built: get the toolkit by tools/setup-cuda, then "
                            "configure with -DBATON_CUDA=ON and build",
                            places.library));
  }
  // The library itself needs no driver to be opened, but without one there is no use.
  void* const driver = ::dlopen(places.driver.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: the NVIDIA driver is missing ({}); install the driver of "
                            "this machine's GPU, or pass the GPU into the container",
                            last_error()));
  }
  void* const library = ::dlopen(places.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(ErrorCode::Unavailable, fmt::format("no CUDA: {}", last_error()));
  }
  const auto build = symbol<CudaBuild>(library, kCudaBuildSymbol);
  const auto make = symbol<CudaMake>(library, kCudaMakeSymbol);
  if (build == nullptr || make == nullptr || std::string_view(build()) != kCudaBuild) {
    return fail(ErrorCode::Unavailable,
                fmt::format("no CUDA: {} is of another build than this program ({}, not {}): build "
                            "both again",
                            places.library,
                            build == nullptr ? "unknown" : build(),
                            kCudaBuild));
  }
  return make(options);
}

Result<Backends> make_cuda_backends(const CudaOptions& options) {
  return load_cuda_backends(options, CudaPlaces::beside_program());
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  BATON_ASSIGN(Backends made, make_cuda_backends({.device = options.device, .ranks = 1}));
  return std::move(made.front());
}

}  // namespace baton::kernels
