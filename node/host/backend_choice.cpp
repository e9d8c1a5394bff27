#include "node/host/backend_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace baton::node {
namespace {

using kernels::Backend;
using kernels::CpuIsa;

CpuIsa isa_named(const std::string& name) {
  return name == "scalar"   ? CpuIsa::Scalar
         : name == "avx2"   ? CpuIsa::Avx2
         : name == "avx512" ? CpuIsa::Avx512
         : name == "amx"    ? CpuIsa::Amx
                            : CpuIsa::Auto;
}

// Ranks share out the threads. `threads` of 0 are those of all usable cores.
Result<std::unique_ptr<Backend>> make_cpu(const EngineSection& engine) {
  const unsigned ranks = engine.tensor_parallel;
  const unsigned threads =
      engine.threads != 0 || ranks == 1 ? engine.threads : std::thread::hardware_concurrency();
  return kernels::make_cpu_backend(
      {.threads = ranks == 1 ? threads : std::max(1U, threads / ranks),
       .isa = isa_named(engine.isa),
       .float_path =
           kernels::float_path_named(engine.float_path).value_or(kernels::FloatPath::Exact)});
}

template <class Make>
Result<kernels::Backends> for_ranks(std::uint32_t ranks, const Make& make) {
  kernels::Backends out;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    BATON_ASSIGN(auto backend, make());
    out.push_back(std::move(backend));
  }
  return out;
}

}  // namespace

Result<ChosenBackends> choose_backends(const EngineSection& engine) {
  ChosenBackends out;
  if (engine.backend == "cuda" || engine.backend == "auto") {
    auto cuda =
        kernels::make_cuda_backends({.device = engine.device, .ranks = engine.tensor_parallel});
    if (cuda) {
      out.ranks = std::move(*cuda);
      return out;
    }
    if (engine.backend == "cuda") {
      return fail(cuda.error().code, "engine.backend cuda: " + cuda.error().message);
    }
    out.note = "engine.backend auto: the CPU computes; " + cuda.error().message;
  }
  if (engine.backend == "reference") {
    BATON_ASSIGN(out.ranks, for_ranks(engine.tensor_parallel, [] {
                   return Result<std::unique_ptr<Backend>>(kernels::make_reference_backend());
                 }));
    return out;
  }
  BATON_ASSIGN(out.ranks, for_ranks(engine.tensor_parallel, [&] { return make_cpu(engine); }));
  return out;
}

}  // namespace baton::node
