#include "tests/unit/kernels_cuda/paged_sequences.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"
#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/kv_write.h"
#include "kernels/half.h"
#include "tests/unit/kernels/float_rows.h"

namespace baton::kernels::cuda::testing {
namespace {

using baton::testing::launch;
using baton::testing::ThreadOrder;

template <unsigned kDim, bool kBfloat>
void run_plan(AttentionArgs args, const AttentionPlan& plan, ThreadOrder order) {
  std::vector<float> partials(
      partial_floats(plan.decode.size(), args.kv_heads, args.pages.head_dim));
  args.partials = partials.data();
  args.tiles = plan.prefill.data();
  if (!plan.prefill.empty()) {
    launch(attend_tiles<kDim, kBfloat>,
           attend_tiles_shape<kDim>(args, plan.prefill.size()),
           args,
           order);
  }
  if (!plan.decode.empty()) {
    args.tiles = plan.decode.data();
    launch(attend_range<kDim, kBfloat>,
           attend_range_shape<kDim>(args, plan.decode.size()),
           args,
           order);
    args.tiles = plan.join.data();
    launch(join_ranges, join_ranges_shape(args, plan.join.size()), args, order);
  }
}

template <unsigned kDim>
void run_plan(const AttentionArgs& args, const AttentionPlan& plan, ThreadOrder order) {
  args.pages.element == KvElement::Bfloat ? run_plan<kDim, true>(args, plan, order)
                                          : run_plan<kDim, false>(args, plan, order);
}

}  // namespace

float AttentionCase::scale() const {
  return 1.0F / std::sqrt(static_cast<float>(head_dim));
}

PagedSequences::PagedSequences(const AttentionCase& c, std::uint32_t sequences, std::mt19937& rng)
    : case_(c), blocks_each_((c.length + c.block_tokens - 1) / c.block_tokens) {
  const std::size_t rows = std::size_t{sequences} * c.length;
  q_ = kernels::testing::random_floats(rows * c.q_width(), rng, 1.5F);
  k_ = kernels::testing::random_floats(rows * c.kv_width(), rng);
  v_ = kernels::testing::random_floats(rows * c.kv_width(), rng);
  tables_.resize(std::size_t{sequences} * blocks_each_);
  std::iota(tables_.begin(), tables_.end(), 1U);
  std::shuffle(tables_.begin(), tables_.end(), rng);
  arena_.assign((tables_.size() + 2) * pages().block_bytes, std::byte{0xFF});
}

KvPages PagedSequences::pages() const {
  const std::size_t elements = case_.kv_width() * case_.block_tokens;
  const std::size_t scales =
      has_scales(case_.element) ? sizeof(float) * 2 * case_.kv_heads * case_.block_tokens : 0;
  const std::size_t values_at = elements * element_bytes(case_.element);
  return {.layer = arena_.data(),
          .tables = tables_.data(),
          .block_bytes = 2 * values_at + scales,
          .values_at = values_at,
          .scales_at = 2 * values_at,
          .block_tokens = case_.block_tokens,
          .kv_heads = case_.kv_heads,
          .head_dim = case_.head_dim,
          .element = case_.element};
}

std::vector<float> PagedSequences::gather(const std::vector<float>& from,
                                          std::size_t width,
                                          std::span<const Rows> step) const {
  std::vector<float> out;
  for (const Rows& rows : step) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(row(rows, 0) * width);
    out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(rows.count * width));
  }
  return out;
}

void PagedSequences::write(std::span<const Rows> step) {
  const std::vector<float> k = gather(k_, case_.kv_width(), step);
  const std::vector<float> v = gather(v_, case_.kv_width(), step);
  std::vector<RowPlace> places;
  for (const Rows& rows : step) {
    for (std::uint32_t i = 0; i < rows.count; ++i) {
      places.push_back({rows.first + i, rows.sequence * blocks_each_});
    }
  }
  const KvWriteArgs args{.pages = pages(),
                         .rows = places.data(),
                         .keys = k.data(),
                         .values = v.data(),
                         .stride = case_.kv_width(),
                         .num_rows = static_cast<std::uint32_t>(places.size()),
                         .first_kv_head = 0,
                         .kv_heads = case_.kv_heads};
  launch(write_kv, kv_write_shape(args), args);
}

std::vector<float> PagedSequences::attend(std::span<const Rows> step,
                                          ThreadOrder order,
                                          bool is_padded) const {
  const std::vector<float> q = gather(q_, case_.q_width(), step);
  std::vector<float> out(q.size(), -3.0F);
  AttentionArgs args;
  args.pages = pages();
  args.q = q.data();
  args.out = out.data();
  args.q_stride = case_.q_width();
  args.out_stride = case_.q_width();
  args.kv_heads = case_.kv_heads;
  args.group = case_.heads / case_.kv_heads;
  args.window = case_.window;
  args.scale = case_.scale();
  args.softcap = case_.softcap;
  AttentionPlan plan;
  plan.by_ranges_only = is_padded;
  std::uint32_t first_row = 0;
  for (const Rows& rows : step) {
    plan.add(
        first_row, rows.count, rows.first, rows.sequence * blocks_each_, args.group, args.window);
    first_row += rows.count;
  }
  if (is_padded) {
    plan.decode.resize(plan.decode.size() + 3);
    plan.join.resize(plan.join.size() + 2);
  }
  switch ((case_.head_dim + 63) / 64) {
    case 1:
      run_plan<64>(args, plan, order);
      break;
    case 2:
      run_plan<128>(args, plan, order);
      break;
    case 3:
    case 4:
      run_plan<256>(args, plan, order);
      break;
    default:
      BATON_CHECK(false, "a head that the kernels have no room for");
  }
  return out;
}

std::vector<double> PagedSequences::stored(const std::vector<float>& rows, std::size_t at) const {
  const std::size_t n = case_.head_dim;
  const float* const x = rows.data() + at;
  std::vector<double> out(n);
  std::vector<std::int8_t> bytes(n);
  std::vector<std::int16_t> shorts(n);
  std::vector<std::uint8_t> floats(n);
  const float scale = case_.element == KvElement::Int8    ? to_int8(x, n, bytes.data())
                      : case_.element == KvElement::Int16 ? to_int16(x, n, shorts.data())
                      : case_.element == KvElement::E4m3  ? to_e4m3(x, n, floats.data())
                                                          : 1.0F;
  for (std::size_t d = 0; d < n; ++d) {
    switch (case_.element) {
      case KvElement::Half:
        out[d] = half_to_float(float_to_half(x[d]));
        break;
      case KvElement::Bfloat:
        out[d] = bfloat_to_float(bfloat_of(x[d]));
        break;
      case KvElement::Float:
        out[d] = x[d];
        break;
      case KvElement::Int8:
        out[d] = static_cast<double>(bytes[d]) * scale;
        break;
      case KvElement::Int16:
        out[d] = static_cast<double>(shorts[d]) * scale;
        break;
      case KvElement::E4m3:
        out[d] = static_cast<double>(e4m3_to_float(floats[d])) * scale;
        break;
    }
  }
  return out;
}

std::vector<double> PagedSequences::oracle(std::uint32_t sequence, std::uint32_t position) const {
  const AttentionCase& c = case_;
  std::vector<double> out;
  const std::size_t first = std::size_t{sequence} * c.length;
  const std::uint32_t low = c.window != 0 && position + 1 > c.window ? position + 1 - c.window : 0;
  for (std::uint32_t head = 0; head < c.heads; ++head) {
    const std::size_t kv = head / (c.heads / c.kv_heads) * c.head_dim;
    std::vector<double> weights;
    double total = 0;
    for (std::uint32_t p = low; p <= position; ++p) {
      const std::vector<double> key = stored(k_, (first + p) * c.kv_width() + kv);
      double score = 0;
      for (std::size_t d = 0; d < c.head_dim; ++d) {
        score += q_[(first + position) * c.q_width() + head * c.head_dim + d] * key[d];
      }
      score *= c.scale();
      weights.push_back(
          std::exp(c.softcap == 0 ? score : c.softcap * std::tanh(score / c.softcap)));
      total += weights.back();
    }
    std::vector<double> sums(c.head_dim);
    for (std::uint32_t p = low; p <= position; ++p) {
      const std::vector<double> value = stored(v_, (first + p) * c.kv_width() + kv);
      for (std::size_t d = 0; d < c.head_dim; ++d) {
        sums[d] += weights[p - low] / total * value[d];
      }
    }
    out.insert(out.end(), sums.begin(), sums.end());
  }
  return out;
}

}  // namespace baton::kernels::cuda::testing
