#include "kernels/cuda/step_image.h"

#include <bit>
#include <utility>

#include "common/base/check.h"

namespace baton::kernels::cuda {
namespace {

std::uint32_t u32(std::size_t value) {
  return static_cast<std::uint32_t>(value);
}

bool are_same(std::span<const AttentionSlice> a, std::span<const AttentionSlice> b) {
  return a.data() == b.data() && a.size() == b.size();
}

}  // namespace

// Block tables are as long as contexts are, so they lie behind all that has its size by the shape.
void StepImage::begin(const StepInputs& inputs, Padding padding) {
  BATON_CHECK(!is_open_, "a step inside a step");
  is_open_ = true;
  image_.clear();
  arrays_.clear();
  tables_.clear();
  plans_.clear();
  shape_.clear();
  slices_ = inputs.slices;
  group_ = inputs.group;
  add_input(inputs.ids);
  add_input(inputs.row_numbers);
  for (const RopeTable& angles : inputs.angles) {
    add_input(angles.cosines);
    add_input(angles.sines);
  }
  if (padding == Padding::None) {  // where rows are padded none is left out
    add_input(inputs.wanted);
  }
  const std::uint32_t table = add_tables(inputs.slices, inputs.arena.layout);
  place_rows(inputs, table);
  rows_at_ = add(std::span<const RowPlace>(rows_));
  for (const StepInputs::Attention& attention : inputs.attentions) {
    const bool are_known = are_same(attention.slices, inputs.slices);
    add_plan(inputs,
             attention,
             are_known ? table : add_tables(attention.slices, inputs.arena.layout),
             padding);
  }
  tables_at_ = image_.add(std::span<const std::uint32_t>(tables_));
  shape_.push_back(tables_at_);
  image_.copy_in();
}

void StepImage::end() {
  is_open_ = false;
  arrays_.clear();
  plans_.clear();
  slices_ = {};
}

bool StepImage::has(std::span<const AttentionSlice> slices) const {
  return is_open_ && are_same(slices, slices_);
}

std::optional<PlannedTiles> StepImage::plan(std::span<const AttentionSlice> slices,
                                            std::uint32_t group,
                                            std::uint32_t window) {
  for (const Plan& plan : plans_) {
    if (are_same(plan.attention.slices, slices) && plan.attention.window == window &&
        group == group_) {
      return PlannedTiles{.prefill = image_.at<AttentionTile>(plan.prefill_at),
                          .decode = image_.at<AttentionTile>(plan.decode_at),
                          .join = image_.at<AttentionTile>(plan.join_at),
                          .num_prefill = plan.blocks.prefill.size(),
                          .num_decode = plan.blocks.decode.size(),
                          .num_join = plan.blocks.join.size()};
    }
  }
  return std::nullopt;
}

template <class T>
std::size_t StepImage::add(std::span<const T> values) {
  const std::size_t place = image_.add(values);
  shape_.push_back(place);
  shape_.push_back(values.size());
  return place;
}

template <class T>
void StepImage::add_input(std::span<const T> values) {
  if (!values.empty()) {
    arrays_.push_back({values.data(), values.size_bytes(), add(values)});
  }
}

// Where the slices' tables begin, one behind the other.
std::uint32_t StepImage::add_tables(std::span<const AttentionSlice> slices,
                                    const KvLayout& layout) {
  const std::uint32_t first = u32(tables_.size());
  for (const AttentionSlice& slice : slices) {
    BATON_CHECK(slice.blocks.size() >= layout.blocks_for(slice.first_position + slice.num_rows),
                "the block table is too short for the slice");
    for (const BlockId block : slice.blocks) {
      tables_.push_back(block.value);
    }
  }
  return first;
}

void StepImage::place_rows(const StepInputs& inputs, std::uint32_t table) {
  rows_.clear();
  for (const AttentionSlice& slice : inputs.slices) {
    BATON_CHECK(slice.first_row == rows_.size(), "slices lie one after the other");
    for (std::size_t row = 0; row < slice.num_rows; ++row) {
      rows_.push_back({slice.first_position + u32(row), table});
    }
    table += u32(slice.blocks.size());
  }
  if (inputs.ids.size() > rows_.size()) {
    rows_.resize(inputs.ids.size(), RowPlace{.position = kNowhere, .table = 0});
  }
}

// A padded plan has as many tiles as so many rows can have, and ranges to the next power of two:
// few shapes, and at most half of the blocks do nothing.
void StepImage::add_plan(const StepInputs& inputs,
                         const StepInputs::Attention& attention,
                         std::uint32_t table,
                         Padding padding) {
  Plan plan{.attention = attention, .blocks = {.by_ranges_only = padding == Padding::ToShape}};
  for (const AttentionSlice& slice : attention.slices) {
    if (slice.num_rows > 0) {
      plan.blocks.add(u32(slice.first_row),
                      u32(slice.num_rows),
                      slice.first_position,
                      table,
                      inputs.group,
                      attention.window);
    }
    table += u32(slice.blocks.size());
  }
  if (padding == Padding::ToShape) {
    const std::size_t row_tiles = (inputs.group + kWarpQueries - 1) / kWarpQueries;
    plan.blocks.join.resize(inputs.ids.size() * row_tiles);
    plan.blocks.decode.resize(std::bit_ceil(plan.blocks.decode.size()));
  }
  plan.prefill_at = add(std::span<const AttentionTile>(plan.blocks.prefill));
  plan.decode_at = add(std::span<const AttentionTile>(plan.blocks.decode));
  plan.join_at = add(std::span<const AttentionTile>(plan.blocks.join));
  plans_.push_back(std::move(plan));
}

}  // namespace baton::kernels::cuda
