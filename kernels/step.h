// A step as a backend with a device sees it: what its operations take from the host, told before
// the first of them, and recordings of decode steps, which are done again with other inputs.
//
// Thread: the backend's caller. Failure: none; inputs that do not fit are the caller's fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/ops.h"

namespace baton::kernels {

// An operation of the step that is handed one of these spans finds it on the device, where one copy
// brought all of them. They stay as they are until the step ends.
struct StepInputs {
  // Attention of some layers: over which slices, and their window.
  struct Attention {
    std::span<const AttentionSlice> slices;
    std::uint32_t window = 0;
  };

  KvArenaView arena;
  std::span<const TokenId> ids;                // as many as rows are computed
  std::span<const std::uint32_t> row_numbers;  // positions of `rope`
  std::span<const RopeTable> angles;
  std::span<const AttentionSlice> slices;  // of write_kv; rows behind the last one's are padding
  std::span<const std::uint32_t> wanted;   // of keep_rows
  std::span<const Attention> attentions;   // all there are
  std::uint32_t group = 1;                 // query heads a kv head
};

// Steps that one decoder runs again and again. A recording has the launches of a step with all
// their arguments, so it serves steps of one shape: they have the same number of rows and of blocks
// of attention, which are therefore padded. Rows that pad a step are computed, written nowhere and
// seen by nobody.
//
// Owner: the decoder whose weights and activations the launches use. The backend outlives it.
class StepRecords {
 public:
  virtual ~StepRecords() = default;

  // Rows that a step of these slices is computed with, at least theirs; 0: it is not recorded. Such
  // a step has no row that is not wanted and tells nobody when a layer is done.
  virtual std::size_t rows_for(std::span<const AttentionSlice> slices) const = 0;
  // Does what `work`'s operations do, which take nothing from the host but the inputs and whose
  // other arguments are the same in every call: calls it, or repeats what was recorded when a step
  // of this shape called it. REQUIRES: inputs.ids.size() is rows_for(inputs.slices).
  virtual void run(const StepInputs& inputs, const std::function<void()>& work) = 0;
};

struct StepCounts {
  std::uint64_t steps = 0;       // that could have been repeated
  std::uint64_t recordings = 0;  // made
  std::uint64_t repeated = 0;    // of `steps`
};

}  // namespace baton::kernels
