// The kernels built for any x86-64.
#include "kernels/cpu/isa_scalar.h"
#include "kernels/cpu/make_table.h"

namespace baton::kernels::cpu {
namespace {
constexpr KernelTable kTable = make_table<Scalar>();
}

const KernelTable* scalar_kernels() {
  return &kTable;
}

}  // namespace baton::kernels::cpu
