// The runner of every family: rows in, decoder, output head for the wanted rows, sampler.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "engine/model/decoder.h"
#include "engine/model/model.h"
#include "engine/model/parts.h"
#include "engine/sampling/sampler.h"

namespace baton::engine {
namespace {

// Changes whenever the same file and backend could give other bits than before.
constexpr std::uint64_t kEngineRevision = 1;
// Rows of logits held at a time: a row may be a megabyte.
constexpr std::size_t kHeadRows = 32;

class Runner final : public ModelRunner {
 public:
  // `decoder` heads up to kHeadRows rows, of a step of `max_rows`.
  Runner(ModelInfo info, std::unique_ptr<Decoder> decoder, std::size_t max_rows)
      : info_(std::move(info)),
        decoder_(std::move(decoder)),
        rows_(max_rows),
        sampler_(info_.vocab_size),
        logits_(std::min(kHeadRows, max_rows) * info_.vocab_size) {}

  const ModelInfo& info() const override { return info_; }

  StepResult run(const StepPlan& plan,
                 const KvArenaView& arena,
                 const LayerDone& layer_done) override {
    rows_.clear();
    std::vector<std::size_t> sampling;  // slice of each wanted row
    for (std::size_t i = 0; i < plan.slices.size(); ++i) {
      add(plan.slices[i], arena, false);
      if (plan.slices[i].sample) {
        sampling.push_back(i);
      }
    }
    StepResult result;
    result.sampled.resize(plan.slices.size());
    if (rows_.size() == 0) {
      return result;
    }
    const float* hidden = decoder_->run(rows_, arena, layer_done);
    const std::size_t vocab = info_.vocab_size;
    for (std::size_t first = 0; first < sampling.size(); first += kHeadRows) {
      const std::size_t count = std::min(kHeadRows, sampling.size() - first);
      decoder_->head(hidden + first * decoder_->spec().dim, count, logits_.data());
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t slice = sampling[first + i];
        result.sampled[slice] =
            sampler_.sample({logits_.data() + i * vocab, vocab}, plan.slices[slice]);
      }
    }
    return result;
  }

  std::vector<float> logits(const SequenceSlice& slice, const KvArenaView& arena) override {
    rows_.clear();
    add(slice, arena, true);
    const float* hidden = decoder_->run(rows_, arena, {});
    const std::size_t vocab = info_.vocab_size;
    std::vector<float> out(rows_.size() * vocab);
    for (std::size_t first = 0; first < rows_.size(); first += kHeadRows) {
      const std::size_t count = std::min(kHeadRows, rows_.size() - first);
      decoder_->head(hidden + first * decoder_->spec().dim, count, out.data() + first * vocab);
    }
    return out;
  }

 private:
  void add(const SequenceSlice& slice, const KvArenaView& arena, bool all_wanted) {
    BATON_CHECK(arena.layout == info_.layout, "an arena of another layout");
    BATON_CHECK(slice.first_position + slice.tokens.size() <= info_.context_length,
                "a slice past the end of the context");
    rows_.add(slice, arena.layout.block_tokens, all_wanted);
  }

  const ModelInfo info_;
  const std::unique_ptr<Decoder> decoder_;
  StepRows rows_;
  Sampler sampler_;
  FloatBuffer logits_;  // [kHeadRows][vocab]
};

Result<std::unique_ptr<ModelRunner>> load(const ModelFile& file,
                                          kernels::Backend& backend,
                                          const RunnerOptions& options) {
  BATON_ASSIGN(auto spec, file.decoder_spec());
  ModelInfo info;
  BATON_ASSIGN(info.layout, kv_layout_of(file, options.block_tokens));
  if (options.max_step_tokens == 0) {
    return fail(ErrorCode::InvalidArgument, "max_step_tokens must be at least 1");
  }
  const RankShare share = whole_model(spec);
  BATON_ASSIGN(auto weights, load_decoder_weights(file, spec, share, backend));
  info.architecture = spec.architecture;
  info.context_length =
      options.max_context == 0 ? spec.context : std::min(options.max_context, spec.context);
  info.vocab_size = weights.vocab();
  info.weights_hash = file.weights_hash();
  const std::array numerics{
      kEngineRevision, backend.numerics_family(), info.weights_hash, info.layout.content_hash()};
  info.numerics_hash = XXH3_64bits(numerics.data(), sizeof(numerics));
  info.weight_bytes = weights.bytes;
  // A table that only looks up embeddings is read a row at a time.
  info.step_weight_bytes =
      info.weight_bytes - (weights.output != nullptr ? weights.embedding->bytes() : 0);
  info.row_products = weights.layer_products;
  info.head_products = std::uint64_t{info.vocab_size} * spec.dim;
  const std::size_t rows = options.max_step_tokens;
  auto decoder = std::make_unique<Decoder>(
      backend, std::move(spec), share, std::move(weights), rows, std::min(kHeadRows, rows));
  return std::make_unique<Runner>(std::move(info), std::move(decoder), rows);
}

}  // namespace

Result<KvLayout> kv_layout_of(const ModelFile& file, std::uint32_t block_tokens) {
  BATON_ASSIGN(const auto spec, file.decoder_spec());
  const KvLayout layout = kv_layout(spec, block_tokens);
  BATON_TRY(validate(layout));
  return layout;
}

Result<std::unique_ptr<ModelRunner>> make_runner(const ModelFile& file,
                                                 kernels::Backend& backend,
                                                 const RunnerOptions& options) {
  try {
    return load(file, backend, options);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "no memory for the model's weights and activations");
  }
}

}  // namespace baton::engine
