#include "tests/unit/kernels/kernel_fixtures.h"

#include <utility>

#include "common/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/emulated_kernels.h"

namespace baton::kernels::testing {

std::vector<NamedBackend> cpu_backends() {
  std::vector<NamedBackend> backends;
  const auto add = [&](Result<std::unique_ptr<Backend>> backend) {
    if (backend) {
      std::string name = (*backend)->description();
      backends.push_back({std::move(name), std::move(*backend)});
    }
  };
  for (const unsigned threads : {1U, 2U}) {
    CpuOptions options;
    options.threads = threads;
    for (const CpuIsa isa : {CpuIsa::Scalar, CpuIsa::Avx2, CpuIsa::Avx512, CpuIsa::Amx}) {
      options.isa = isa;
      add(make_cpu_backend(options));
    }
  }
  // Slow, so with one number of threads.
  if (const cpu::KernelTable* emulated = emulated_avx512_kernels(); emulated != nullptr) {
    CpuOptions options;
    options.threads = 2;
    add(cpu::make_backend(*emulated, options));
  }
  BATON_CHECK(!backends.empty() && backends.front().name.find("scalar") != std::string::npos,
              "the scalar kernels run everywhere");
  return backends;
}

std::vector<NamedBackend> all_backends() {
  std::vector<NamedBackend> backends = cpu_backends();
  backends.push_back({"reference", make_reference_backend()});
  return backends;
}

}  // namespace baton::kernels::testing
