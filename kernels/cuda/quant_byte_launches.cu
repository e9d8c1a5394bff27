#include "kernels/cuda/format_launches_impl.h"

namespace baton::kernels::cuda {

template struct FormatLaunches<FormatQ8_0>;
template struct FormatLaunches<FormatQ5_1>;

}  // namespace baton::kernels::cuda
