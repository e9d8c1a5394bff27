#include "kernels/cuda/attention_width_impl.h"

namespace baton::kernels::cuda {

template void launch_heads<64>(Stream stream, const AttentionArgs& args, const PlannedTiles& tiles);

}  // namespace baton::kernels::cuda
