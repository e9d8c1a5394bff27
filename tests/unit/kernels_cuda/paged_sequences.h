// Sequences over an emulated device's arena: what tests of the attention kernels run.
//
// Thread: one. Failure: none; wrong shapes are the test's fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/kv_pages.h"
#include "tests/support/cuda_emulator.h"

namespace baton::kernels::cuda::testing {

struct AttentionCase {
  std::string name;
  std::uint32_t heads;
  std::uint32_t kv_heads;
  std::uint32_t head_dim;
  std::uint32_t window;
  float softcap;
  std::uint32_t block_tokens;
  KvElement element;
  std::uint32_t length;

  std::size_t q_width() const { return std::size_t{heads} * head_dim; }
  std::size_t kv_width() const { return std::size_t{kv_heads} * head_dim; }
  float scale() const;
};

// Rows of one sequence in a step.
struct Rows {
  std::uint32_t sequence;
  std::uint32_t first;
  std::uint32_t count;
};

// Inputs of several sequences of `length` tokens, and an arena full of what is no number.
class PagedSequences {
 public:
  PagedSequences(const AttentionCase& c, std::uint32_t sequences, std::mt19937& rng);

  std::vector<float>& keys() { return k_; }
  std::vector<float>& values() { return v_; }
  std::vector<float>& queries() { return q_; }
  const std::vector<std::byte>& arena() const { return arena_; }

  // Writes the keys and values of these rows.
  void write(std::span<const Rows> step);
  // Attention of these rows; all that they see has been written. Rows follow one another in the
  // result.
  std::vector<float> attend(
      std::span<const Rows> step,
      baton::testing::ThreadOrder order = baton::testing::ThreadOrder::Ascending) const {
    return attend(step, order, false);
  }
  // The same by ranges alone, with blocks that do nothing among them.
  std::vector<float> attend_padded(std::span<const Rows> step) const {
    return attend(step, baton::testing::ThreadOrder::Ascending, true);
  }
  // The same in double, from keys and values as the arena rounds them.
  std::vector<double> oracle(std::uint32_t sequence, std::uint32_t position) const;

 private:
  std::size_t row(const Rows& rows, std::uint32_t i) const {
    return std::size_t{rows.sequence} * case_.length + rows.first + i;
  }
  std::vector<float> attend(std::span<const Rows> step,
                            baton::testing::ThreadOrder order,
                            bool is_padded) const;
  KvPages pages() const;
  std::vector<float> gather(const std::vector<float>& from,
                            std::size_t width,
                            std::span<const Rows> step) const;
  // A row of keys or values as the arena gives it back.
  std::vector<double> stored(const std::vector<float>& rows, std::size_t at) const;

  AttentionCase case_;
  std::uint32_t blocks_each_;
  std::vector<std::uint32_t> tables_;  // [sequence][blocks_each_]
  mutable std::vector<std::byte> arena_;
  std::vector<float> q_, k_, v_;  // [sequence][length][width]
};

}  // namespace baton::kernels::cuda::testing
