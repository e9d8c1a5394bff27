#include "tests/support/scripted_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"
#include "engine/kv/kv_memory.h"
#include "engine/step/planner.h"

namespace baton::testing {
namespace {

constexpr std::uint32_t kHeadDim = 16;

std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
  state ^= value + 0x9e3779b97f4a7c15ULL + (state << 6) + (state >> 2);
  state ^= state >> 33;
  state *= 0xff51afd7ed558ccdULL;
  state ^= state >> 33;
  return state;
}

// One 16-bit element of a block of one layer.
std::uint16_t* element(std::byte* block, std::size_t index) {
  return reinterpret_cast<std::uint16_t*>(block) + index;
}

// Where a token's key has its dimension `dim`. There is one head, which makes the other two orders
// the same.
std::size_t key_index(const KvLayout& layout, std::uint32_t slot, std::uint32_t dim) {
  return layout.order == KvOrder::KeysByDimValuesByToken
             ? std::size_t{dim} * layout.block_tokens + slot
             : std::size_t{slot} * kHeadDim + dim;
}

std::size_t value_index(const KvLayout& layout, std::uint32_t slot, std::uint32_t dim) {
  return std::size_t{kHeadDim} * layout.block_tokens + std::size_t{slot} * kHeadDim + dim;
}

// What a token leaves at dimension `dim` of its key (value) in a layer.
std::uint16_t mark(TokenId token, std::uint32_t position, std::uint32_t layer, std::uint32_t dim) {
  return static_cast<std::uint16_t>(
      mix(mix(static_cast<std::uint64_t>(token), position), layer * 64 + dim));
}

}  // namespace

ScriptedRunner::ScriptedRunner(ScriptedOptions options) : options_(std::move(options)) {
  info_.architecture = "scripted";
  info_.context_length = options_.context_length;
  info_.vocab_size = options_.vocab_size;
  info_.layout = {.layers = options_.layers,
                  .kv_heads = 1,
                  .head_dim = kHeadDim,
                  .block_tokens = options_.block_tokens,
                  .order = options_.order};
  info_.weights_hash = options_.weights_seed;
  info_.numerics_hash = 0x5c21;
}

engine::StepResult ScriptedRunner::run(const engine::StepPlan& plan,
                                       const KvArenaView& arena,
                                       const engine::LayerDone& layer_done) {
  if (options_.before_step) {
    options_.before_step();
  }
  if (options_.check_plan) {
    options_.check_plan(plan);
  }
  BATON_CHECK(arena.layout == info_.layout, "the arena has another layout");
  ++num_steps_;
  max_slices_ = std::max<std::uint32_t>(max_slices_, plan.slices.size());
  const std::uint32_t bt = info_.layout.block_tokens;
  for (std::uint32_t layer = 0; layer < info_.layout.layers; ++layer) {
    if (options_.before_layer) {
      options_.before_layer(layer);
    }
    for (const engine::SequenceSlice& slice : plan.slices) {
      for (std::size_t i = 0; i < slice.num_rows(); ++i) {
        const TokenId token =
            i < slice.tokens.size() ? slice.tokens[i] : slice.drafts[i - slice.tokens.size()];
        const auto position = slice.first_position + static_cast<std::uint32_t>(i);
        std::byte* block = arena.block(layer, slice.blocks[position / bt]);
        const std::uint32_t slot = position % bt;
        for (std::uint32_t dim = 0; dim < kHeadDim; ++dim) {
          const std::uint16_t value = mark(token, position, layer, dim);
          *element(block, key_index(info_.layout, slot, dim)) = value;
          *element(block, value_index(info_.layout, slot, dim)) = value;
        }
      }
    }
    if (layer_done) {
      layer_done(layer);
    }
  }
  engine::StepResult result;
  for (const engine::SequenceSlice& slice : plan.slices) {
    num_tokens_ += slice.tokens.size();
    num_drafts_ += slice.drafts.size();
    result.drafted.push_back(static_cast<std::uint32_t>(slice.drafts.size()));
    const bool samples = slice.sample && (slice.mask == nullptr || !slice.mask->is_late());
    result.sampled.push_back(samples ? std::optional(sample(slice, 0, arena)) : std::nullopt);
    std::vector<engine::SampledToken>& scored = result.scored.emplace_back();
    for (const TokenId target : slice.targets) {
      scored.push_back({.token = target, .logprob = -2.0F});
      for (std::uint32_t k = 0; k < slice.target_alternatives; ++k) {
        scored.back().top.push_back({static_cast<TokenId>(k), -1.0F - static_cast<float>(k)});
      }
    }
    std::vector<engine::SampledToken>& followed = result.followed.emplace_back();
    TokenId last = samples ? result.sampled.back()->token : 0;
    for (std::size_t i = 0; samples && i < slice.drafts.size() && slice.drafts[i] == last; ++i) {
      followed.push_back(sample(slice, i + 1, arena));
      last = followed.back().token;
    }
  }
  return result;
}

std::uint64_t ScriptedRunner::history_hash(const engine::SequenceSlice& slice,
                                           const KvArenaView& arena,
                                           std::uint32_t length) const {
  const std::uint32_t bt = info_.layout.block_tokens;
  std::uint64_t hash = options_.weights_seed;
  for (std::uint32_t position = 0; position < length; ++position) {
    const std::uint32_t slot = position % bt;
    for (std::uint32_t layer = 0; layer < info_.layout.layers; ++layer) {
      std::byte* block = arena.block(layer, slice.blocks[position / bt]);
      for (std::uint32_t dim = 0; dim < kHeadDim; dim += 5) {
        hash = mix(hash, *element(block, key_index(info_.layout, slot, dim)));
        hash = mix(hash, *element(block, value_index(info_.layout, slot, dim)));
      }
    }
  }
  return hash;
}

engine::SampledToken ScriptedRunner::sample(const engine::SequenceSlice& slice,
                                            std::size_t drafts,
                                            const KvArenaView& arena) const {
  const auto length =
      slice.first_position + static_cast<std::uint32_t>(slice.tokens.size() + drafts);
  std::uint64_t hash = history_hash(slice, arena, length);
  if (slice.sampling->temperature > 0) {
    hash = mix(mix(hash, slice.sampling->seed), slice.choice);
    hash = mix(hash, slice.output.size() + drafts);
  }
  auto token = static_cast<TokenId>(hash % options_.vocab_size);
  if (options_.habits > 0 && hash >> 61U != 0) {
    const TokenId before = drafts == 0 ? slice.tokens.back() : slice.drafts[drafts - 1];
    token = static_cast<TokenId>(mix(static_cast<std::uint64_t>(before), 7) % options_.habits);
  }
  const auto allowed = slice.mask == nullptr ? std::span<const std::uint32_t>()
                                             : slice.mask->allowed(slice.drafts.first(drafts));
  const auto is_allowed = [&](TokenId each) {
    const auto bit = static_cast<std::uint32_t>(each);
    return allowed.empty() || (allowed[bit / 32] >> (bit % 32) & 1U) != 0;
  };
  while (std::ranges::find(slice.barred, token) != slice.barred.end() || !is_allowed(token)) {
    token = (token + 1) % static_cast<TokenId>(options_.vocab_size);
  }
  engine::SampledToken sampled{.token = token, .logprob = -1.0F};
  for (std::int32_t i = 0; i < slice.sampling->num_logprobs; ++i) {
    sampled.top.push_back(
        {(token + i) % static_cast<TokenId>(options_.vocab_size), -1.0F - static_cast<float>(i)});
  }
  return sampled;
}

std::vector<float> ScriptedRunner::logits(const engine::SequenceSlice& slice, const KvArenaView&) {
  return std::vector<float>(slice.tokens.size() * options_.vocab_size, 0.0F);
}

std::vector<TokenId> scripted_output(const ScriptedOptions& options,
                                     const GenerateRequest& request) {
  ScriptedOptions quiet = options;
  quiet.before_step = nullptr;
  quiet.before_layer = nullptr;
  quiet.check_plan = nullptr;
  ScriptedRunner runner(quiet);
  const auto size = engine::check_size(request, options.context_length, options.vocab_size);
  BATON_CHECK(size.has_value(), "an impossible request");
  const std::uint32_t blocks = runner.info().layout.blocks_for(size->max_stored + 1);
  auto memory =
      engine::KvMemory::create(runner.info().layout, {.num_blocks = blocks, .prefix_cache = false});
  BATON_CHECK(memory.has_value(), "no memory for the test's arena");
  engine::Sequence sequence(request, *size, engine::BlockTable({}, *(*memory)->acquire(blocks)), 0);
  FinishReason finish = FinishReason::None;
  while (finish == FinishReason::None) {
    const engine::PlannedSlice planned{&sequence, sequence.num_pending()};
    const auto result =
        runner.run(engine::to_step_plan({&planned, 1}), (*memory)->arena(), nullptr);
    finish = sequence.advance(planned.count, &*result.sampled[0]);
  }
  return {sequence.output().begin(), sequence.output().end()};
}

}  // namespace baton::testing
