#include "kernels/cpu/attention_plan.h"

#include <algorithm>
#include <cstdint>

#include "common/base/check.h"

namespace baton::kernels::cpu {
namespace {

static_assert(sizeof(BlockId) == sizeof(std::uint32_t));

// Few rows leave too few jobs for all threads: these go by chunks.
constexpr std::size_t kFewRows = 8;
// A job that is at most this part of a thread's share need not be cut: others fill the gap.
constexpr std::size_t kJobsAThread = 4;
constexpr std::size_t kNowhere = SIZE_MAX;  // a job without partials

KvCode code_of(KvDType dtype) {
  switch (dtype) {
    case KvDType::F32:
      return KvCode::F32;
    case KvDType::F16:
      return KvCode::F16;
    case KvDType::I8:
      return KvCode::I8;
    case KvDType::F8:
      return KvCode::F8;
    case KvDType::I16:
      return KvCode::I16;
  }
  BATON_CHECK(false, "a KV dtype without kernels");
  return KvCode::F32;
}

std::size_t first_granule(const AttentionJob& job) {
  return first_seen(job.first_position, job.window) / kLanes * kLanes;
}

// Chunks of positions that a slice sees.
struct ChunkRange {
  std::uint32_t first;
  std::uint32_t last;
  std::size_t count() const { return std::size_t{last} - first + 1; }
};
ChunkRange seen_chunks(const AttentionSlice& slice, std::uint32_t window) {
  const std::uint32_t end = slice.first_position + static_cast<std::uint32_t>(slice.num_rows);
  return {static_cast<std::uint32_t>(first_seen(slice.first_position, window) / kAttentionChunk),
          static_cast<std::uint32_t>((end - 1) / kAttentionChunk)};
}

}  // namespace

void AttentionPlan::make(const KvArenaView& arena,
                         const AttentionParams& params,
                         std::span<const AttentionSlice> slices,
                         const float* q,
                         std::size_t q_stride,
                         float* out,
                         unsigned threads) {
  attend_.clear();
  merge_.clear();
  attend_places_.clear();
  merge_places_.clear();
  partial_floats_ = 0;
  std::size_t all_chunks = 0;
  for (const AttentionSlice& slice : slices) {
    if (slice.num_rows != 0) {
      all_chunks += params.kv_heads * seen_chunks(slice, params.window).count();
    }
  }
  AttentionJob job{};
  job.layer = arena.base + params.layer * arena.layer_stride();
  job.block_bytes = arena.layout.block_bytes();
  job.block_tokens = arena.layout.block_tokens;
  job.kv_heads = arena.layout.kv_heads;
  job.head_dim = params.head_dim;
  job.code = code_of(arena.layout.dtype);
  job.group = params.heads / params.kv_heads;
  job.scale = params.scale;
  job.softcap = params.softcap;
  job.window = params.window;
  job.q_stride = q_stride;
  job.out_stride = std::size_t{params.heads} * params.head_dim;
  for (const AttentionSlice& slice : slices) {
    if (slice.num_rows == 0) {
      continue;
    }
    job.blocks = &slice.blocks.data()->value;
    for (std::uint32_t head = 0; head < params.kv_heads; ++head) {
      const std::size_t at = std::size_t{head} * job.group * params.head_dim;
      job.kv_head = params.first_kv_head + head;
      job.q = q + slice.first_row * q_stride + at;
      job.out = out + slice.first_row * job.out_stride + at;
      add_slice(job, slice, threads, all_chunks / (kJobsAThread * threads));
    }
  }
  // Partials are placed last, when their buffer no longer moves.
  float* base = partials_.at_least(partial_floats_);
  for (std::size_t i = 0; i < attend_.size(); ++i) {
    attend_[i].next = i + threads < attend_.size() ? &attend_[i + threads] : nullptr;
    attend_[i].partials = attend_places_[i] == kNowhere ? nullptr : base + attend_places_[i];
  }
  for (std::size_t i = 0; i < merge_.size(); ++i) {
    merge_[i].partials = base + merge_places_[i];
  }
}

void AttentionPlan::add_slice(AttentionJob job,
                              const AttentionSlice& slice,
                              unsigned threads,
                              std::size_t most_chunks) {
  const ChunkRange range = seen_chunks(slice, job.window);
  const std::size_t chunks = range.count();
  const std::size_t most_rows = attention_rows(job.group);
  job.end_position = slice.first_position + slice.num_rows;
  if (threads > 1 && slice.num_rows <= std::min(kFewRows, most_rows) && chunks > 1 &&
      chunks > most_chunks) {
    job.first_position = slice.first_position;
    job.rows = static_cast<std::uint32_t>(slice.num_rows);
    const std::size_t chunk_floats =
        std::size_t{job.rows} * job.group * partial_floats(job.head_dim);
    AttentionJob merged = job;
    merged.first_chunk = range.first;
    merged.chunks = static_cast<std::uint32_t>(chunks);
    merged.partial_stride = chunk_floats;
    merge_.push_back(merged);
    merge_places_.push_back(partial_floats_);
    for (std::uint32_t chunk = range.first; chunk <= range.last; ++chunk) {
      AttentionJob part = job;
      part.first_chunk = chunk;
      part.seen_first = std::max(first_granule(job), chunk * kAttentionChunk);
      part.seen_end = std::min(job.end_position, (chunk + 1) * kAttentionChunk);
      attend_.push_back(part);
      attend_places_.push_back(partial_floats_);
      partial_floats_ += chunk_floats;
    }
    return;
  }
  // Later rows see more: they go first, so that the last jobs are short.
  const std::size_t tiles = (slice.num_rows + most_rows - 1) / most_rows;
  for (std::size_t tile = tiles; tile-- > 0;) {
    const std::size_t row = tile * most_rows;
    AttentionJob part = job;
    part.first_position = slice.first_position + static_cast<std::uint32_t>(row);
    part.rows = static_cast<std::uint32_t>(std::min(most_rows, slice.num_rows - row));
    part.q += row * job.q_stride;
    part.out += row * job.out_stride;
    part.seen_first = first_granule(part);
    part.seen_end = part.first_position + part.rows;
    attend_.push_back(part);
    attend_places_.push_back(kNowhere);
  }
}

}  // namespace baton::kernels::cpu
