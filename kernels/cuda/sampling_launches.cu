#include "kernels/cuda/launch.h"
#include "kernels/cuda/logit_edits.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/sampling_launches.h"

namespace baton::kernels::cuda {

void launch_sampling(Stream stream, const SampleArgs& args) {
  launch(stream, edit_logits, edit_logits_shape(args), args);
  launch(stream, sample_rows, sample_rows_shape(args), args);
}

}  // namespace baton::kernels::cuda
