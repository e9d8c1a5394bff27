// What a step costs in time, learned from the steps that were: a fixed part, a part for each row
// that is sampled, for each prompt row, and for each token of context that rows look at. What was
// never seen to cost anything counts as free, so it is tried, and then known. Older steps count
// less and less.
//
// Owner: a scheduler. Thread: one; pure. Failure: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton::engine {

struct StepShape {
  std::uint32_t rows = 0;         // whose next token is sampled, drafts included
  std::uint32_t prompt_rows = 0;  // others
  std::uint64_t context = 0;      // tokens that all rows together look back at
};

class StepCost {
 public:
  void observe(const StepShape& shape, double seconds);
  // Seconds; 0 before the first step.
  double predict(const StepShape& shape) const;
  // One more sampled row that looks back at `context` tokens.
  double row_seconds(std::uint64_t context) const;
  std::uint64_t num_observed() const { return num_observed_; }

 private:
  static constexpr std::size_t kParts = 4;
  using Parts = std::array<double, kParts>;

  static Parts parts_of(const StepShape& shape);
  void solve();

  std::array<Parts, kParts> moments_{};  // decayed sums of part x part
  Parts products_{};                     // decayed sums of part x seconds
  Parts cost_{};                         // of each part, never negative
  std::uint64_t num_observed_ = 0;
};

}  // namespace baton::engine
