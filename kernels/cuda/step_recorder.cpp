#include "kernels/cuda/step_recorder.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace baton::kernels::cuda {
namespace {

constexpr std::size_t kBlockRows = 64;  // what blocks of products take: padding to it costs nothing

}  // namespace

std::size_t StepRecorder::rows_for(std::span<const AttentionSlice> slices) const {
  std::size_t rows = 0;
  for (const AttentionSlice& slice : slices) {
    if (slice.num_rows > kMostSliceRows) {
      return 0;
    }
    rows += slice.num_rows;
  }
  if (!can_record_ || rows == 0 || rows > kMostRecordedRows) {
    return 0;
  }
  return rows <= kBlockRows ? std::bit_ceil(rows)
                            : (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
}

void StepRecorder::run(const StepInputs& inputs, const std::function<void()>& work) {
  ++counts_.steps;
  image_.begin(inputs, Padding::ToShape);
  if (Entry* const entry = find(inputs)) {
    repeat(*entry, work);
  } else {
    work();
    add(inputs);
  }
  image_.end();
}

StepRecorder::Entry* StepRecorder::find(const StepInputs& inputs) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.releases != device_.releases(); });
  const auto found = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.arena == inputs.arena.base && entry.shape == image_.shape();
  });
  return found == entries_.end() ? nullptr : &*found;
}

void StepRecorder::add(const StepInputs& inputs) {
  if (entries_.size() == kMostRecordings) {
    entries_.erase(std::ranges::min_element(entries_, {}, &Entry::last_use));
  }
  entries_.push_back({.arena = inputs.arena.base,
                      .shape = image_.shape(),
                      .releases = device_.releases(),
                      .last_use = ++uses_,
                      .recording = nullptr});
}

void StepRecorder::repeat(Entry& entry, const std::function<void()>& work) {
  entry.last_use = ++uses_;
  if (entry.recording == nullptr && can_record_) {
    entry.recording = record(work);
    can_record_ = entry.recording != nullptr;
    counts_.recordings += can_record_ ? 1 : 0;
  } else if (entry.recording != nullptr && device_.doubts_recordings()) {
    if (const auto now = record(work)) {
      device_.expect_alike(*entry.recording, *now);
    }
  }
  if (entry.recording == nullptr) {
    work();
    return;
  }
  device_.replay(*entry.recording);
  ++counts_.repeated;
}

// Null: the device cannot keep it, and nothing was done.
std::unique_ptr<Device::Recording> StepRecorder::record(const std::function<void()>& work) {
  device_.begin_recording();
  work();
  auto recording = device_.end_recording();
  return recording ? std::move(*recording) : nullptr;
}

}  // namespace baton::kernels::cuda
