// The runner of every family: rows in, layers, final norm, output head for the wanted rows,
// sampler.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "common/base/check.h"
#include "engine/model/model.h"
#include "engine/model/parts.h"
#include "engine/sampling/sampler.h"

namespace baton::engine {
namespace {

using kernels::Backend;
using kernels::MatmulOut;
using kernels::PackedMatrix;

// Changes whenever the same file and backend could give other bits than before.
constexpr std::uint64_t kEngineRevision = 1;
// Rows of logits held at a time: a row may be a megabyte.
constexpr std::size_t kHeadRows = 32;

struct Family {
  std::string_view architecture;
  Result<std::unique_ptr<ForwardPass>> (*make)(WeightLoader&,
                                               const Hyperparameters&,
                                               const PackedMatrix&,
                                               std::size_t);
};
constexpr std::array kFamilies{Family{"llama", make_llama}, Family{"gemma3", make_gemma3}};

Result<Family> family_of(const ModelFile& file) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.architecture == file.architecture()) {
      return family;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  return fail(ErrorCode::InvalidModel,
              fmt::format("model architecture \"{}\" is not supported; known: {}",
                          file.architecture().substr(0, 64),
                          known));
}

KvLayout layout_of(const Hyperparameters& hyper, std::uint32_t block_tokens) {
  return {.layers = hyper.layers,
          .kv_heads = hyper.kv_heads,
          .head_dim = hyper.head_dim,
          .block_tokens = block_tokens};
}

// Everything a runner is made of.
struct Loaded {
  ModelInfo info;
  Hyperparameters hyper;
  std::unique_ptr<PackedMatrix> embedding;  // [vocab][dim], also the output head when tied
  std::unique_ptr<PackedMatrix> output;     // null when tied
  std::vector<float> output_norm;           // [dim]
  std::unique_ptr<ForwardPass> pass;
};

class Runner final : public ModelRunner {
 public:
  Runner(Loaded loaded, Backend& backend, std::size_t max_rows)
      : m_(std::move(loaded)),
        backend_(backend),
        rows_(max_rows),
        sampler_(m_.info.vocab_size),
        normed_(std::min(kHeadRows, max_rows) * m_.hyper.dim),
        logits_(std::min(kHeadRows, max_rows) * m_.info.vocab_size) {}

  const ModelInfo& info() const override { return m_.info; }

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
    const float* hidden = m_.pass->run(rows_, arena, layer_done);
    const std::size_t vocab = m_.info.vocab_size;
    for (std::size_t first = 0; first < sampling.size(); first += kHeadRows) {
      const std::size_t count = std::min(kHeadRows, sampling.size() - first);
      head(hidden + first * m_.hyper.dim, count, logits_.data());
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
    const float* hidden = m_.pass->run(rows_, arena, {});
    const std::size_t vocab = m_.info.vocab_size;
    std::vector<float> out(rows_.size() * vocab);
    for (std::size_t first = 0; first < rows_.size(); first += kHeadRows) {
      const std::size_t count = std::min(kHeadRows, rows_.size() - first);
      head(hidden + first * m_.hyper.dim, count, out.data() + first * vocab);
    }
    return out;
  }

 private:
  void add(const SequenceSlice& slice, const KvArenaView& arena, bool all_wanted) {
    BATON_CHECK(arena.layout == m_.info.layout, "an arena of another layout");
    BATON_CHECK(slice.first_position + slice.tokens.size() <= m_.info.context_length,
                "a slice past the end of the context");
    rows_.add(slice, arena.layout.block_tokens, all_wanted);
  }

  // out: [count][vocab]
  void head(const float* hidden, std::size_t count, float* out) {
    const PackedMatrix* matrix = m_.output != nullptr ? m_.output.get() : m_.embedding.get();
    backend_.rms_norm(
        hidden, count, m_.hyper.dim, m_.output_norm.data(), m_.hyper.eps, normed_.data());
    backend_.matmul(normed_.data(), count, std::array{MatmulOut{matrix, out}});
  }

  Loaded m_;
  Backend& backend_;
  StepRows rows_;
  Sampler sampler_;
  FloatBuffer normed_;  // [kHeadRows][dim]
  FloatBuffer logits_;  // [kHeadRows][vocab]
};

Result<std::unique_ptr<ModelRunner>> load(const ModelFile& file,
                                          Backend& backend,
                                          const RunnerOptions& options) {
  BATON_ASSIGN(const auto family, family_of(file));
  Loaded out;
  BATON_ASSIGN(out.hyper, read_hyperparameters(file));
  BATON_ASSIGN(out.info.layout, kv_layout_of(file, options.block_tokens));
  if (options.max_step_tokens == 0) {
    return fail(ErrorCode::InvalidArgument, "max_step_tokens must be at least 1");
  }
  WeightLoader loader(file, backend);
  BATON_ASSIGN(const auto table, file.tensor("token_embd.weight"));
  if (table.rows == 0 || table.rows > (1U << 24U)) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("tensor token_embd.weight: a vocabulary of {}", table.rows));
  }
  BATON_ASSIGN(out.embedding, loader.matrix("token_embd.weight", table.rows, out.hyper.dim));
  if (file.has_tensor("output.weight")) {
    BATON_ASSIGN(out.output, loader.matrix("output.weight", table.rows, out.hyper.dim));
  }
  const std::uint64_t tables = loader.elements();
  BATON_ASSIGN(out.output_norm, loader.vector("output_norm.weight", out.hyper.dim));
  BATON_ASSIGN(out.pass, family.make(loader, out.hyper, *out.embedding, options.max_step_tokens));
  ModelInfo& info = out.info;
  info.architecture = file.architecture();
  info.context_length = options.max_context == 0 ? out.hyper.context
                                                 : std::min(options.max_context, out.hyper.context);
  info.vocab_size = static_cast<std::uint32_t>(table.rows);
  info.weights_hash = file.weights_hash();
  const std::array numerics{
      kEngineRevision, backend.numerics_family(), info.weights_hash, info.layout.content_hash()};
  info.numerics_hash = XXH3_64bits(numerics.data(), sizeof(numerics));
  info.weight_bytes = loader.bytes();
  // A table that only looks up embeddings is read a row at a time.
  info.step_weight_bytes = info.weight_bytes - (out.output != nullptr ? out.embedding->bytes() : 0);
  info.row_products = loader.elements() - tables;
  info.head_products = table.rows * out.hyper.dim;
  return std::make_unique<Runner>(std::move(out), backend, options.max_step_tokens);
}

}  // namespace

Result<KvLayout> kv_layout_of(const ModelFile& file, std::uint32_t block_tokens) {
  BATON_TRY(family_of(file));  // a node asks for the layout first: say what is really wrong
  BATON_ASSIGN(const auto hyper, read_hyperparameters(file));
  const KvLayout layout = layout_of(hyper, block_tokens);
  BATON_TRY(validate(layout));
  return layout;
}

Result<std::unique_ptr<ModelRunner>> make_runner(const ModelFile& file,
                                                 Backend& backend,
                                                 const RunnerOptions& options) {
  try {
    return load(file, backend, options);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "no memory for the model's weights and activations");
  }
}

}  // namespace baton::engine
