#include "kernels/cuda/sampling_runner.h"

#include "kernels/cuda/sampling_launches.h"

namespace baton::kernels::cuda {

void SamplingRunner::run(float* logits,
                         std::size_t vocab,
                         const SampleRows& rows,
                         TokenId* tokens) {
  const std::size_t count = rows.rows.size();
  if (count == 0) {
    return;
  }
  image_.clear();
  const std::size_t rows_at = image_.add(rows.rows);
  const std::size_t biases_at = image_.add(rows.biases);
  const std::size_t seen_at = image_.add(rows.seen);
  const std::size_t barred_at = image_.add(rows.barred);
  image_.copy_in();
  const SampleArgs args{.logits = logits,
                        .rows = image_.at<SampleRow>(rows_at),
                        .biases = image_.at<TokenBias>(biases_at),
                        .seen = image_.at<SeenToken>(seen_at),
                        .barred = image_.at<std::int32_t>(barred_at),
                        .masks = nullptr,
                        .tokens = tokens_.at_least(count),
                        .num_rows = static_cast<std::uint32_t>(count),
                        .vocab = static_cast<std::uint32_t>(vocab)};
  launch_sampling(device_.stream(), args);
  device_.copy_out(
      tokens, reinterpret_cast<const std::byte*>(args.tokens), count * sizeof(TokenId));
}

}  // namespace baton::kernels::cuda
