// The runner of every family: rows in, decoder, output head for the wanted rows, sampler.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <new>
#include <system_error>
#include <utility>

#include "common/base/check.h"
#include "engine/model/decoder_team.h"
#include "engine/model/model.h"
#include "engine/model/packed_cache.h"
#include "engine/model/parts.h"
#include "engine/model/rank_shares.h"
#include "engine/parallel/device_communicator.h"
#include "engine/sampling/sample_batch.h"
#include "engine/sampling/sampler.h"

namespace baton::engine {
namespace {

// Changes whenever the same file and backend could give other bits than before.
constexpr std::uint64_t kEngineRevision = 2;
// Rows of logits held at a time: a row may be a megabyte.
constexpr std::size_t kHeadRows = 32;

class Runner final : public ModelRunner {
 public:
  // `decoder` heads up to kHeadRows rows, of a step of `max_rows`.
  Runner(ModelInfo info, std::unique_ptr<DecoderTeam> decoder, std::size_t max_rows)
      : info_(std::move(info)),
        decoder_(std::move(decoder)),
        rows_(max_rows),
        sampler_(info_.vocab_size),
        logits_(std::make_unique_for_overwrite<float[]>(std::min(kHeadRows, max_rows) *
                                                        info_.vocab_size)) {}

  const ModelInfo& info() const override { return info_; }

  StepResult run(const StepPlan& plan,
                 const KvArenaView& arena,
                 const LayerDone& layer_done) override {
    adopt(arena);
    rows_.clear();
    StepResult result;
    std::vector<WantedRow> wanted;
    for (std::size_t i = 0; i < plan.slices.size(); ++i) {
      const SequenceSlice& slice = plan.slices[i];
      add(slice, arena, !slice.targets.empty());
      result.drafted.push_back(static_cast<std::uint32_t>(slice.drafts.size()));
      for (std::size_t row = 0; row < slice.targets.size(); ++row) {
        wanted.push_back({i, row, true});
      }
      for (std::size_t drafts = 0; slice.sample && drafts <= slice.drafts.size(); ++drafts) {
        wanted.push_back({i, drafts, false});
      }
    }
    result.sampled.resize(plan.slices.size());
    result.followed.resize(plan.slices.size());
    result.scored.resize(plan.slices.size());
    if (rows_.size() == 0) {
      return result;
    }
    decoder_->run(rows_, arena, layer_done);
    for (std::size_t first = 0; first < wanted.size(); first += kHeadRows) {
      const std::span rows = std::span(wanted).subspan(first);
      head(first, rows.first(std::min(kHeadRows, rows.size())), plan);
      for (std::size_t i = 0; i < kHeadRows && i < rows.size(); ++i) {
        take(i, rows[i], plan, result);
      }
    }
    decoder_->settle();
    return result;
  }

  std::vector<float> logits(const SequenceSlice& slice, const KvArenaView& arena) override {
    adopt(arena);
    rows_.clear();
    add(slice, arena, true);
    decoder_->run(rows_, arena, {});
    const std::size_t vocab = info_.vocab_size;
    std::vector<float> out(rows_.size() * vocab);
    for (std::size_t first = 0; first < rows_.size(); first += kHeadRows) {
      const std::size_t count = std::min(kHeadRows, rows_.size() - first);
      float* const to = out.data() + first * vocab;
      if (const float* const logits = decoder_->head(first, count, to); logits != to) {
        decoder_->backend().download(logits, count * vocab, to);
      }
    }
    decoder_->settle();
    return out;
  }

 private:
  // A row whose next token is sampled: the one behind so many of its slice's drafts; or is scored:
  // that of so many a target.
  struct WantedRow {
    std::size_t slice = 0;
    std::size_t number = 0;
    bool is_target = false;
  };

  // Whether the backend has the logits and samples this row, too.
  bool is_chosen_there(const WantedRow& row, const StepPlan& plan) const {
    return !decoder_->backend().is_on_host() && !row.is_target &&
           is_for_backend(plan.slices[row.slice]);
  }

  // Of these rows, the first of them the step's `first`: the logits in logits_,
  // or the token in chosen_ where the backend chooses.
  void head(std::size_t first, std::span<const WantedRow> rows, const StepPlan& plan) {
    float* const logits = decoder_->head(first, rows.size(), logits_.get());
    if (logits == logits_.get()) {
      return;
    }
    const std::size_t vocab = info_.vocab_size;
    for (std::size_t i = 0; i < rows.size();) {
      const bool there = is_chosen_there(rows[i], plan);
      batch_.clear();
      std::size_t end = i;
      for (; end < rows.size() && is_chosen_there(rows[end], plan) == there; ++end) {
        if (there) {
          batch_.add(plan.slices[rows[end].slice], rows[end].number);
        }
      }
      if (there) {
        decoder_->backend().sample(logits + i * vocab, vocab, batch_.rows(), &chosen_[i]);
      } else {
        decoder_->backend().download(
            logits + i * vocab, (end - i) * vocab, logits_.get() + i * vocab);
      }
      i = end;
    }
  }

  // Row `i` of those that `head` had last. Rows of a slice come in order; those
  // behind a wrong draft are left out.
  void take(std::size_t i, const WantedRow& row, const StepPlan& plan, StepResult& result) {
    const SequenceSlice& slice = plan.slices[row.slice];
    const std::span logits(logits_.get() + i * info_.vocab_size, info_.vocab_size);
    const auto sample = [&] {
      return is_chosen_there(row, plan)
                 ? SampledToken{.token = chosen_[i], .logprob = 0.0F, .top = {}}
                 : sampler_.sample(logits, slice, row.number);
    };
    if (row.is_target) {
      result.scored[row.slice].push_back(
          sampler_.score(logits, slice.targets[row.number], slice.target_alternatives));
      return;
    }
    std::vector<SampledToken>& followed = result.followed[row.slice];
    if (row.number == 0) {
      if (slice.mask == nullptr || !slice.mask->is_late()) {
        result.sampled[row.slice] = sample();
      }
      return;
    }
    if (!result.sampled[row.slice] || followed.size() + 1 != row.number) {
      return;
    }
    const TokenId before =
        followed.empty() ? result.sampled[row.slice]->token : followed.back().token;
    if (before == slice.drafts[row.number - 1]) {
      followed.push_back(sample());
    }
  }

  void adopt(const KvArenaView& arena) {
    BATON_CHECK(arena.layout == info_.layout, "an arena of another layout");
    const Status adopted = decoder_->adopt_arena(arena);
    BATON_CHECK(adopted, adopted.error().message);
  }

  void add(const SequenceSlice& slice, const KvArenaView& arena, bool all_wanted) {
    BATON_CHECK(slice.first_position + slice.num_rows() <= info_.context_length,
                "a slice past the end of the context");
    BATON_CHECK(slice.targets.empty() ||
                    slice.targets.size() + (slice.sample ? 1 : 0) == slice.tokens.size(),
                "targets that are not those of a slice's tokens");
    if (slice.arrived && slice.first_position > 0) {
      decoder_->bring_blocks(arena,
                             slice.blocks.first(arena.layout.blocks_for(slice.first_position)));
    }
    rows_.add(slice, arena.layout.block_tokens, all_wanted);
  }

  const ModelInfo info_;
  const std::unique_ptr<DecoderTeam> decoder_;
  StepRows rows_;
  Sampler sampler_;
  SampleBatch batch_;                      // that a backend samples
  const std::unique_ptr<float[]> logits_;  // [kHeadRows][vocab]
  std::array<TokenId, kHeadRows> chosen_{};
};

// The same file may turn by other frequencies where the context is limited.
std::uint64_t hash_of(std::span<const RopeSpec> ropes) {
  std::uint64_t hash = 0;
  for (const RopeSpec& rope : ropes) {
    hash = XXH3_64bits_withSeed(
        rope.frequencies.data(), rope.frequencies.size() * sizeof(double), hash);
  }
  return hash;
}

Result<std::uint32_t> vocab_of(const ModelFile& file) {
  auto table = file.tensor("token_embd.weight");
  if (!table) {
    return fail(ErrorCode::InvalidModel, table.error().message);
  }
  if (table->rows == 0 || table->rows > (1U << 24U)) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("tensor token_embd.weight: a vocabulary of {}", table->rows));
  }
  return static_cast<std::uint32_t>(table->rows);
}

Result<std::unique_ptr<ModelRunner>> load(const ModelFile& file,
                                          std::span<kernels::Backend* const> backends,
                                          const RunnerOptions& options) {
  BATON_ASSIGN(auto spec, file.decoder_spec());
  ModelInfo info;
  BATON_ASSIGN(info.layout, kv_layout_of(file, options.block_tokens, options.kv_dtype));
  if (options.max_step_tokens == 0) {
    return fail(ErrorCode::InvalidArgument, "max_step_tokens must be at least 1");
  }
  limit_context(
      spec, options.max_context == 0 ? spec.context : std::min(options.max_context, spec.context));
  BATON_ASSIGN(info.vocab_size, vocab_of(file));
  const auto ranks = static_cast<std::uint32_t>(backends.size());
  BATON_ASSIGN(const std::vector<RankShare> shares,
               rank_shares(file, spec, info.vocab_size, options.partial_sums, ranks));
  const std::size_t rows = options.max_step_tokens;
  auto team = std::make_unique<RankTeam>(ranks);
  DecoderTeam::Communicators device_ranks;
  std::vector<std::unique_ptr<Decoder>> decoders;
  for (const RankShare& share : shares) {
    kernels::Backend& backend = *backends[share.rank];
    Communicator* communicator = &team->communicator(share.rank);
    if (!backend.is_on_host() && ranks > 1) {
      communicator =
          device_ranks.emplace_back(std::make_unique<DeviceCommunicator>(*communicator, backend))
              .get();
    }
    if (options.arena) {
      BATON_TRY(backend.adopt_arena(*options.arena, {share.kv_heads.first, share.kv_heads.count}));
    }
    BATON_ASSIGN(auto weights, load_decoder_weights(file, spec, share, backend));
    info.weight_bytes += weights.bytes;
    // A table that only looks up embeddings is read a row at a time.
    info.step_weight_bytes += weights.bytes - weights.idle_expert_bytes -
                              (weights.output != nullptr ? weights.embedding->bytes() : 0);
    info.row_products += weights.layer_products;
    decoders.push_back(std::make_unique<Decoder>(
        backend, *communicator, spec, share, std::move(weights), rows, std::min(kHeadRows, rows)));
  }
  info.architecture = spec.architecture;
  info.context_length = spec.context;
  info.weights_hash = file.weights_hash();
  const std::array numerics{kEngineRevision,
                            backends.front()->numerics_family(),
                            std::uint64_t{options.partial_sums},
                            info.weights_hash,
                            info.layout.content_hash(),
                            hash_of(spec.ropes)};
  info.numerics_hash = XXH3_64bits(numerics.data(), sizeof(numerics));
  info.head_products = std::uint64_t{info.vocab_size} * spec.dim;
  auto decoder =
      std::make_unique<DecoderTeam>(std::move(team), std::move(device_ranks), std::move(decoders));
  return std::make_unique<Runner>(std::move(info), std::move(decoder), rows);
}

}  // namespace

Result<KvLayout> kv_layout_of(const ModelFile& file, std::uint32_t block_tokens, KvDType dtype) {
  BATON_ASSIGN(const auto spec, file.decoder_spec());
  KvLayout layout = kv_layout(spec, block_tokens);
  layout.dtype = dtype;
  BATON_TRY(validate(layout));
  return layout;
}

Result<std::unique_ptr<ModelRunner>> make_runner(const ModelFile& file,
                                                 std::span<kernels::Backend* const> backends,
                                                 const RunnerOptions& options) {
  try {
    if (options.partial_sums != 1) {  // pieces are not what the cache holds
      return load(file, backends, options);
    }
    return through_packed_cache(file.weights_hash(), *backends.front(), options.packed_cache, [&] {
      return load(file, backends, options);
    });
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "no memory for the model's weights and activations");
  } catch (const std::system_error& error) {
    return fail(ErrorCode::Unavailable,
                fmt::format("cannot start {} ranks: {}", backends.size(), error.what()));
  }
}

Result<std::unique_ptr<ModelRunner>> make_runner(const ModelFile& file,
                                                 kernels::Backend& backend,
                                                 const RunnerOptions& options) {
  const std::array backends{&backend};
  return make_runner(file, backends, options);
}

}  // namespace baton::engine
