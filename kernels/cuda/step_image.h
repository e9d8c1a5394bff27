// What the operations of one step take from the host (kernels/step.h), on the device: ids, angles,
// places of rows, block tables, and the plan of attention for each window that layers have. All of
// it is made once a step and copied in at once.
//
// Owner: a backend. Thread: its caller. Failure: as scratch.h; slices that do not fit end the
// process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/host_image.h"
#include "kernels/cuda/kv_pages.h"
#include "kernels/step.h"

namespace baton::kernels::cuda {

// ToShape: rows beyond the slices' are nowhere, and plans have blocks that do nothing, so that many
// steps are of one shape.
enum class Padding : std::uint8_t { None, ToShape };

class StepImage {
 public:
  explicit StepImage(Device& device) : image_(device) {}

  void begin(const StepInputs& inputs, Padding padding);
  // The inputs' spans may change from now on.
  void end();
  bool is_open() const { return is_open_; }

  // Where arrays lie and how long those are that launches count: what of the step is in the
  // arguments of its launches.
  const std::vector<std::size_t>& shape() const { return shape_; }

  // The device's copy of a span of the inputs; null: it is none of them.
  template <class T>
  const T* find(std::span<const T> values) {
    for (const Array& array : arrays_) {
      if (array.host == values.data() && array.bytes == values.size_bytes()) {
        return image_.at<T>(array.place);
      }
    }
    return nullptr;
  }
  // Of slices that are the inputs': what write_kv is given, and how many rows.
  const RowPlace* rows() { return image_.at<RowPlace>(rows_at_); }
  std::size_t num_rows() const { return rows_.size(); }
  bool has(std::span<const AttentionSlice> slices) const;
  // Nothing: attention that the inputs do not have.
  std::optional<PlannedTiles> plan(std::span<const AttentionSlice> slices,
                                   std::uint32_t group,
                                   std::uint32_t window);
  // All slices' block tables, which rows and plans point into.
  const std::uint32_t* tables() { return image_.at<std::uint32_t>(tables_at_); }

 private:
  struct Array {
    const void* host;
    std::size_t bytes;
    std::size_t place;
  };
  struct Plan {
    StepInputs::Attention attention;
    AttentionPlan blocks;
    std::size_t prefill_at = 0;
    std::size_t decode_at = 0;
    std::size_t join_at = 0;
  };

  template <class T>
  std::size_t add(std::span<const T> values);
  template <class T>
  void add_input(std::span<const T> values);
  std::uint32_t add_tables(std::span<const AttentionSlice> slices, const KvLayout& layout);
  void place_rows(const StepInputs& inputs, std::uint32_t table);
  void add_plan(const StepInputs& inputs,
                const StepInputs::Attention& attention,
                std::uint32_t table,
                Padding padding);

  HostImage image_;
  bool is_open_ = false;
  std::vector<std::size_t> shape_;
  std::vector<Array> arrays_;
  std::span<const AttentionSlice> slices_;
  std::vector<RowPlace> rows_;
  std::size_t rows_at_ = 0;
  std::uint32_t group_ = 1;
  std::vector<Plan> plans_;
  std::vector<std::uint32_t> tables_;
  std::size_t tables_at_ = 0;
};

}  // namespace baton::kernels::cuda
