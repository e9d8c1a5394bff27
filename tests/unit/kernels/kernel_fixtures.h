// What tests of the CPU's kernels share: every backend present, and random weights.
//
// Thread: one. Failure: a backend that should exist and does not ends the test program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/unit/kernels/random_weights.h"

namespace baton::kernels::testing {

struct NamedBackend {
  std::string name;
  std::unique_ptr<Backend> backend;
};
// The fast backend on each instruction set this machine has or emulates, with 1 and 2 threads.
std::vector<NamedBackend> cpu_backends();
// Those and the reference.
std::vector<NamedBackend> all_backends();
}  // namespace baton::kernels::testing
