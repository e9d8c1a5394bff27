#include "kernels/cuda/format_launches_impl.h"

namespace baton::kernels::cuda {

template struct FormatLaunches<FormatQ5_K>;
template struct FormatLaunches<FormatQ6_K>;

}  // namespace baton::kernels::cuda
