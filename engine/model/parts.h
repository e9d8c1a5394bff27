// What a forward pass is made of: activation buffers, rotary angles, and the rows of one step.
//
// Owner: one model runner. Thread: the engine thread. Failure: buffers throw bad_alloc; the rest
// ends the process on an impossible plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/decoder_spec.h"
#include "engine/runner.h"
#include "kernels/ops.h"

namespace baton::engine {

// Floats in a backend's memory, 64-byte aligned and not initialised: memory is touched only as far
// as steps are wide.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  FloatBuffer(kernels::Backend& backend, std::size_t size) : data_(backend.allocate(size)) {}
  float* data() { return data_.get(); }

 private:
  std::shared_ptr<float> data_;
};

// A norm's weights or a bias in a backend's memory; empty where a model has none.
class FloatVector {
 public:
  FloatVector() = default;
  // A copy of what is in the host's memory. Throws std::bad_alloc.
  FloatVector(kernels::Backend& backend, std::span<const float> values)
      : data_(backend.allocate(values.size())), size_(values.size()) {
    backend.upload(values.data(), size_, data_.get());
  }
  const float* data() const { return data_.get(); }
  bool empty() const { return size_ == 0; }

 private:
  std::shared_ptr<float> data_;
  std::size_t size_ = 0;
};

// Rotary angles of one step's rows. The table it fills is indexed by row, not by position, so that
// its size does not grow with the context.
class RopeAngles {
 public:
  RopeAngles(const RopeSpec& spec, std::size_t max_rows);
  // Rows behind the positions' turn by anything.
  kernels::RopeTable table_for(std::span<const std::uint32_t> positions, std::size_t rows);

 private:
  const std::vector<double> frequencies_;  // [half]
  const double magnitude_;
  std::vector<float> cosines_;  // [max_rows][half]
  std::vector<float> sines_;
};

// The rows of all slices of one step, packed one slice after the other.
class StepRows {
 public:
  explicit StepRows(std::size_t max_rows);

  void clear();
  // `all_wanted`: the hidden state of every row is asked for, not just of those that are sampled.
  void add(const SequenceSlice& slice, std::uint32_t block_tokens, bool all_wanted);

  std::size_t size() const { return ids_.size(); }
  std::span<const TokenId> ids() const { return ids_; }
  std::span<const std::uint32_t> positions() const { return positions_; }
  // 0, 1, 2, …: which row of a RopeAngles table belongs to which row.
  std::span<const std::uint32_t> row_numbers(std::size_t rows) const {
    return {row_numbers_.data(), rows};
  }
  std::span<const kernels::AttentionSlice> slices() const { return slices_; }
  // Rows whose hidden state is asked for, ascending, and the same rows as slices that
  // lie one after the other: what is left to compute once the last layer's KV is written.
  std::span<const std::uint32_t> wanted() const { return wanted_; }
  std::span<const kernels::AttentionSlice> wanted_slices() const { return wanted_slices_; }
  bool all_wanted() const { return wanted_.size() == ids_.size(); }

 private:
  std::vector<TokenId> ids_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> row_numbers_;
  std::vector<kernels::AttentionSlice> slices_;
  std::vector<std::uint32_t> wanted_;
  std::vector<kernels::AttentionSlice> wanted_slices_;
};

}  // namespace baton::engine
