#include "bench/engine/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace baton::bench {
namespace {

Result<std::unique_ptr<kernels::Backend>> make_backend(const LoadOptions& options) {
  if (options.backend == "reference") {
    return kernels::make_reference_backend();
  }
  if (options.backend == "cpu") {
    const auto float_path = kernels::float_path_named(options.float_path);
    if (!float_path) {
      return fail(ErrorCode::InvalidArgument,
                  fmt::format("unknown float path \"{}\"", options.float_path));
    }
    return kernels::make_cpu_backend({.threads = options.threads, .float_path = *float_path});
  }
  if (options.backend == "cuda") {
    return kernels::make_cuda_backend({.record_steps = options.record_steps});
  }
  return fail(ErrorCode::InvalidArgument,
              fmt::format("unknown backend \"{}\"; known: cpu, cuda, reference", options.backend));
}

}  // namespace

Result<LoadedModel> LoadedModel::load(const LoadOptions& options) {
  LoadedModel out;
  BATON_ASSIGN(out.file_, engine::ModelFile::open(options.model));
  BATON_ASSIGN(out.backend_, make_backend(options));
  out.description_ = out.backend_->description();
  out.step_tokens_ = options.step_tokens;
  BATON_ASSIGN(out.runner_,
               engine::make_runner(*out.file_,
                                   *out.backend_,
                                   {.max_step_tokens = options.step_tokens,
                                    .kv_dtype = options.kv_dtype,
                                    .packed_cache = {.folder = options.packed_cache}}));
  const engine::ModelInfo& info = out.runner_->info();
  if (options.tokens > info.context_length) {
    return fail(
        ErrorCode::ContextTooLong,
        fmt::format(
            "{} tokens do not fit the model's context of {}", options.tokens, info.context_length));
  }
  const std::uint32_t each = info.layout.blocks_for(options.tokens);
  const auto total = static_cast<std::uint32_t>(each * options.sequences);
  BATON_ASSIGN(auto arena, engine::KvArena::create(info.layout, total));
  out.arena_.emplace(std::move(arena));
  out.blocks_.resize(options.sequences);
  for (std::uint32_t block = 0; block < total; ++block) {
    out.blocks_[block / each].push_back(BlockId{block});
  }
  return out;
}

engine::SequenceSlice LoadedModel::slice(std::size_t sequence,
                                         std::span<const TokenId> tokens,
                                         std::size_t first_position) const {
  engine::SequenceSlice out;
  out.tokens = tokens;
  out.first_position = static_cast<std::uint32_t>(first_position);
  out.blocks = blocks_[sequence];
  return out;
}

void LoadedModel::copy_context(std::size_t from, std::size_t to, std::size_t tokens) {
  const KvLayout& layout = arena().layout;
  for (std::uint32_t i = 0; i < layout.blocks_for(tokens); ++i) {
    for (std::uint32_t layer = 0; layer < layout.layers; ++layer) {
      std::memcpy(arena().block(layer, blocks_[to][i]),
                  arena().block(layer, blocks_[from][i]),
                  layout.block_bytes());
    }
  }
}

std::optional<engine::SampledToken> LoadedModel::prefill(std::size_t sequence,
                                                         std::span<const TokenId> tokens,
                                                         std::size_t first_position,
                                                         const SamplingParams* sampling) {
  engine::StepResult result;
  for (std::size_t at = 0; at < tokens.size(); at += step_tokens_) {
    const std::size_t count = std::min<std::size_t>(step_tokens_, tokens.size() - at);
    engine::StepPlan plan{{slice(sequence, tokens.subspan(at, count), first_position + at)}};
    plan.slices[0].sample = sampling != nullptr && at + count == tokens.size();
    plan.slices[0].sampling = sampling;
    result = runner_->run(plan, arena(), {});
  }
  return result.sampled.empty() ? std::nullopt : result.sampled[0];
}

}  // namespace baton::bench
