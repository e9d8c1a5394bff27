// A KV arena for a few sequences and the chores of feeding a runner.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/model/model.h"

namespace baton::engine::testing {

// Sequences with interleaved blocks, so that no block table is a plain run.
class Sequences {
 public:
  Sequences(ModelRunner& runner, std::size_t count, std::size_t tokens) : runner_(runner) {
    const KvLayout& layout = runner.info().layout;
    const std::uint32_t each = layout.blocks_for(tokens);
    const auto total = static_cast<std::uint32_t>(each * count);
    memory_.resize(KvArenaView{nullptr, layout, total}.bytes());
    // What an arena holds before it is written must not matter.
    std::fill(memory_.begin(), memory_.end(), std::byte{0xff});
    arena_ = {memory_.data(), layout, total};
    blocks_.resize(count);
    for (std::uint32_t i = 0; i < total; ++i) {
      blocks_[i % count].push_back(BlockId{total - 1 - i});
    }
  }

  const KvArenaView& arena() const { return arena_; }

  SequenceSlice slice(std::size_t sequence,
                      std::span<const TokenId> tokens,
                      std::size_t first) const {
    SequenceSlice out;
    out.tokens = tokens;
    out.first_position = static_cast<std::uint32_t>(first);
    out.blocks = blocks_[sequence];
    return out;
  }

  // Logits of all tokens, computed in chunks of `chunk`.
  std::vector<float> logits(std::size_t sequence,
                            std::span<const TokenId> tokens,
                            std::size_t chunk) {
    std::vector<float> out;
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      const auto part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
      const std::vector<float> rows = runner_.logits(slice(sequence, part, at), arena_);
      out.insert(out.end(), rows.begin(), rows.end());
    }
    return out;
  }

  // Greedy continuation of `prompt`, prefilled in chunks of `chunk`; fills `sampled` when given.
  std::vector<TokenId> generate(std::size_t sequence,
                                std::span<const TokenId> prompt,
                                std::size_t count,
                                std::size_t chunk,
                                const SamplingParams& params,
                                std::vector<SampledToken>* sampled = nullptr) {
    std::vector<TokenId> output;
    std::vector<TokenId> next;
    for (std::size_t at = 0; at < prompt.size(); at += chunk) {
      const auto part = prompt.subspan(at, std::min(chunk, prompt.size() - at));
      StepPlan plan{{slice(sequence, part, at)}};
      plan.slices[0].sample = at + part.size() == prompt.size();
      plan.slices[0].sampling = &params;
      plan.slices[0].prompt = prompt;
      take(runner_.run(plan, arena_, {}), output, sampled);
    }
    while (output.size() < count) {
      next.assign(1, output.back());
      StepPlan plan{{slice(sequence, next, prompt.size() + output.size() - 1)}};
      plan.slices[0].sample = true;
      plan.slices[0].sampling = &params;
      plan.slices[0].prompt = prompt;
      plan.slices[0].output = output;
      take(runner_.run(plan, arena_, {}), output, sampled);
    }
    return output;
  }

 private:
  static void take(const StepResult& result,
                   std::vector<TokenId>& output,
                   std::vector<SampledToken>* sampled) {
    if (!result.sampled[0]) {
      return;
    }
    output.push_back(result.sampled[0]->token);
    if (sampled != nullptr) {
      sampled->push_back(*result.sampled[0]);
    }
  }

  ModelRunner& runner_;
  std::vector<std::byte> memory_;
  KvArenaView arena_;
  std::vector<std::vector<BlockId>> blocks_;
};

}  // namespace baton::engine::testing
