#include "kernels/cuda/format_launches_impl.h"

namespace baton::kernels::cuda {

template struct FormatLaunches<FormatQ4_0>;
template struct FormatLaunches<FormatQ4_1>;
template struct FormatLaunches<FormatQ4_K>;

}  // namespace baton::kernels::cuda
