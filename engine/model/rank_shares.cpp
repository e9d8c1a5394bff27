#include "engine/model/rank_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/parallel/shard_plan.h"
#include "kernels/dtype.h"

namespace baton::engine {
namespace {

constexpr std::uint32_t kVocabUnit = 32;  // a backend packs that many rows together

// Elements that a piece of K must be a multiple of, in every layer: those of the largest block of
// the tensor `what`.
std::uint32_t largest_block(const ModelFile& file, const DecoderSpec& spec, const char* what) {
  std::uint32_t block = 1;
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    if (const auto tensor = file.tensor(fmt::format("blk.{}.{}.weight", layer, what))) {
      block = std::max(block, kernels::info(tensor->dtype).block_elements);
    }
  }
  return block;
}

// The pieces that are not empty, and the ranks' borders among them.
PartialSums share_out(const ShardBorders& shards, std::uint32_t rank, std::uint32_t ranks) {
  PartialSums out;
  out.borders = {0};
  std::uint32_t count = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const ShardRange range = shards_of(r, ranks);
    for (std::uint32_t s = range.first; s < range.end; ++s) {
      if (shards[s] == shards[s + 1]) {
        continue;
      }
      ++count;
      if (r == rank) {
        out.own.push_back({shards[s], shards[s + 1] - shards[s]});
      }
    }
    out.borders.push_back(count);
  }
  return out;
}

// All that the pieces cover.
IndexRange cover(const std::vector<IndexRange>& pieces) {
  if (pieces.empty()) {
    return {};
  }
  return {pieces.front().first, pieces.back().first + pieces.back().count - pieces.front().first};
}

}  // namespace

Result<std::vector<RankShare>> rank_shares(const ModelFile& file,
                                           const DecoderSpec& spec,
                                           std::uint32_t vocab,
                                           std::uint32_t partial_sums,
                                           std::uint32_t ranks) {
  if (partial_sums == 1 && ranks == 1) {
    return std::vector{whole_model(spec, vocab)};
  }
  if (partial_sums != kVirtualShards || ranks == 0 || kVirtualShards % ranks != 0) {
    return fail(
        ErrorCode::InvalidConfig,
        fmt::format("tensor_parallel {} with {} partial sums is not possible; use 1, 2 or 4 "
                    "with {} partial sums",
                    ranks,
                    partial_sums,
                    kVirtualShards));
  }
  if (spec.experts.count > 0) {
    return fail(ErrorCode::InvalidConfig,
                "tensor_parallel: a model with experts runs on one rank; use tensor_parallel 1 and "
                "model.partial_sums 1");
  }
  if (vocab < kVocabUnit * ranks) {
    return fail(ErrorCode::InvalidConfig,
                fmt::format("tensor_parallel {}: a vocabulary of {} is too small", ranks, vocab));
  }
  const std::uint32_t group_width = spec.heads / spec.kv_heads * spec.head_dim;
  const std::uint32_t block = largest_block(file, spec, "attn_output");
  const ShardBorders heads = cut_shards(spec.kv_heads, block / std::gcd(block, group_width));
  const ShardBorders ffn = cut_shards(spec.ffn, largest_block(file, spec, "ffn_down"));
  std::vector<RankShare> out;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    RankShare share;
    share.rank = rank;
    share.attention = share_out(heads, rank, ranks);
    share.feed_forward = share_out(ffn, rank, ranks);
    share.kv_heads = cover(share.attention.own);
    const std::uint32_t group = spec.heads / spec.kv_heads;
    share.heads = {share.kv_heads.first * group, share.kv_heads.count * group};
    share.ffn = cover(share.feed_forward.own);
    for (std::uint32_t r = 0; r <= ranks; ++r) {
      const std::uint64_t units = vocab / kVocabUnit;
      share.vocab.push_back(
          r == ranks ? vocab : static_cast<std::uint32_t>(units * r / ranks * kVocabUnit));
    }
    out.push_back(std::move(share));
  }
  return out;
}

}  // namespace baton::engine
