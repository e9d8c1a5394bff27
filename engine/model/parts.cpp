#include "engine/model/parts.h"

#include "common/base/check.h"
#include "common/base/fixed_math.h"

namespace baton::engine {

RopeAngles::RopeAngles(const RopeSpec& spec, std::size_t max_rows)
    : frequencies_(spec.frequencies),
      magnitude_(spec.magnitude),
      cosines_(max_rows * frequencies_.size()),
      sines_(max_rows * frequencies_.size()) {}

kernels::RopeTable RopeAngles::table_for(std::span<const std::uint32_t> positions,
                                         std::size_t rows) {
  const std::size_t half = frequencies_.size();
  for (std::size_t row = 0; row < positions.size(); ++row) {
    for (std::size_t i = 0; i < half; ++i) {
      double sine = 0;
      double cosine = 0;
      fixed_sincos(positions[row] * frequencies_[i], sine, cosine);
      cosines_.data()[row * half + i] = static_cast<float>(cosine * magnitude_);
      sines_.data()[row * half + i] = static_cast<float>(sine * magnitude_);
    }
  }
  const std::size_t size = rows * half;
  return {rows, half, {cosines_.data(), size}, {sines_.data(), size}};
}

StepRows::StepRows(std::size_t max_rows) : row_numbers_(max_rows) {
  for (std::size_t i = 0; i < max_rows; ++i) {
    row_numbers_[i] = static_cast<std::uint32_t>(i);
  }
}

void StepRows::clear() {
  ids_.clear();
  positions_.clear();
  slices_.clear();
  wanted_.clear();
  wanted_slices_.clear();
}

void StepRows::add(const SequenceSlice& slice, std::uint32_t block_tokens, bool all_wanted) {
  const std::size_t first = size();
  const std::size_t count = slice.num_rows();
  BATON_CHECK(!slice.tokens.empty(), "a slice without tokens");
  BATON_CHECK(slice.drafts.empty() || slice.sample, "drafts in a slice that does not sample");
  BATON_CHECK(first + count <= row_numbers_.size(), "a step wider than max_step_tokens");
  BATON_CHECK(slice.blocks.size() * block_tokens >= slice.first_position + count,
              "a slice's blocks do not cover its positions");
  ids_.insert(ids_.end(), slice.tokens.begin(), slice.tokens.end());
  ids_.insert(ids_.end(), slice.drafts.begin(), slice.drafts.end());
  for (std::size_t i = 0; i < count; ++i) {
    positions_.push_back(slice.first_position + static_cast<std::uint32_t>(i));
  }
  slices_.push_back({first, count, slice.first_position, slice.blocks});
  if (!all_wanted && !slice.sample) {
    return;
  }
  const std::size_t from = all_wanted ? 0 : slice.tokens.size() - 1;
  wanted_slices_.push_back({wanted_.size(),
                            count - from,
                            slice.first_position + static_cast<std::uint32_t>(from),
                            slice.blocks});
  for (std::size_t i = from; i < count; ++i) {
    wanted_.push_back(static_cast<std::uint32_t>(first + i));
  }
}

}  // namespace baton::engine
