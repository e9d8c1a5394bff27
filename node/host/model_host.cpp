#include "node/host/model_host.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/config/catalogue.h"
#include "node/host/backend_choice.h"
#include "node/identity.h"

namespace baton::node {
namespace {

// Every node of a cluster must sum alike, so one with several ranks decides for all.
std::uint32_t partial_sums_of(const ClusterConfig& config) {
  constexpr std::uint32_t kAnyRanks = 4;
  if (config.model.partial_sums != 0) {
    return config.model.partial_sums;
  }
  const auto has_ranks = [](const NodeEntry& node) { return node.engine.tensor_parallel > 1; };
  return std::ranges::any_of(config.prefill.pool, has_ranks) ||
                 std::ranges::any_of(config.decode.pool, has_ranks)
             ? kAnyRanks
             : 1;
}

// For /v1/models: when the file was last changed, so that every node says the same.
std::uint64_t changed_at(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_mtime) : 0;
}

engine::PackedCacheOptions packed_cache(const ModelSection& model, const Logger& log) {
  engine::PackedCacheOptions out;
  if (model.packed_cache != "off") {
    out.folder = model.packed_cache == "auto" ? CataloguePlaces::from_environment().packed_folder()
                                              : model.packed_cache;
  }
  out.limit_bytes = std::uint64_t{model.packed_cache_mb} << 20U;
  out.note = [&log](std::string_view line) { log.warn("{}", line); };
  out.progress = [&log](std::string_view line) { log.info("{}", line); };
  return out;
}

// Names the file in an error that does not.
template <class T>
Result<T> about(const std::string& path, Result<T> result) {
  if (!result && result.error().message.find(path) == std::string::npos) {
    return fail(result.error().code, path + ": " + result.error().message);
  }
  return result;
}

// One block's worth of tokens through the model before the node says it is ready: the first request
// must not wait for the page faults of weights and buffers. The block goes back with the lease.
// Gives the tokens per second of the second of two passes.
Result<double> warm_up(engine::ModelRunner& runner, engine::KvMemory& kv) {
  BATON_ASSIGN(const std::vector<engine::BlockLease> leases, kv.acquire(1));
  const std::vector<BlockId> blocks{leases.front().id()};
  const std::vector<TokenId> tokens(kv.layout().block_tokens - 1, TokenId{0});
  const SamplingParams sampling{.temperature = 0.0F};
  engine::StepPlan plan;
  plan.slices.push_back({.tokens = tokens,
                         .first_position = 0,
                         .blocks = blocks,
                         .sample = true,
                         .sampling = &sampling});
  runner.run(plan, kv.arena(), nullptr);
  const auto start = std::chrono::steady_clock::now();
  runner.run(plan, kv.arena(), nullptr);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(tokens.size()) / std::max(took.count(), 1e-6);
}

// Large chunks of a prompt are faster a token than the short pass that was measured: several times
// where weights are read from memory for each pass. Too high a rate only means a smaller share of
// blocks that are looked at.
constexpr double kChunkGain = 4;

transfer::DigestMode digest_for(const std::string& wish,
                                const KvLayout& layout,
                                double tokens_per_s) {
  if (const auto mode = transfer::parse_digest_mode(wish)) {
    return *mode;
  }
  return transfer::choose_digest_mode(
      layout, tokens_per_s * kChunkGain, transfer::measure_digest_rate());
}

}  // namespace

Result<std::unique_ptr<ModelHost>> ModelHost::load(const ClusterConfig& config,
                                                   const EngineSection& engine,
                                                   std::uint32_t max_step_tokens,
                                                   bool may_draft,
                                                   const Logger& log) {
  std::unique_ptr<ModelHost> host(new ModelHost());
  BATON_ASSIGN(host->path_, resolve_model_path(config.model, CataloguePlaces::from_environment()));
  BATON_ASSIGN(host->file_, engine::ModelFile::open(host->path_));
  BATON_ASSIGN(const engine::TokenizerSpec tokenizer, host->file_->tokenizer_spec());
  const auto dtype = kv_dtype_named(config.kv.dtype);
  BATON_CHECK(dtype, "the schema lets only known types pass");
  BATON_ASSIGN(
      const KvLayout layout,
      about(host->path_, engine::kv_layout_of(*host->file_, config.kv.block_tokens, *dtype)));
  BATON_ASSIGN(const std::uint32_t blocks, engine::blocks_in(layout, config.kv.arena_mb));
  BATON_ASSIGN(host->kv_,
               engine::KvMemory::create(layout,
                                        {.num_blocks = blocks,
                                         .prefix_cache = config.kv.prefix_cache,
                                         .available_memory = std::nullopt}));
  const TransferSection& transfer = config.transfer;
  BATON_ASSIGN(host->transport_,
               transfer::Transport::create({.transport = transfer.transport,
                                            .path = transfer.path,
                                            .network = transfer.network,
                                            .ucx = transfer.ucx,
                                            .window_bytes = std::size_t{transfer.window_mb} << 20},
                                           host->kv_->arena()));
  BATON_ASSIGN(ChosenBackends chosen, choose_backends(engine));
  if (!chosen.note.empty()) {
    log.info("{}", chosen.note);
  }
  host->backends_ = std::move(chosen.ranks);
  std::vector<kernels::Backend*> backends;
  for (const auto& backend : host->backends_) {
    backends.push_back(backend.get());
  }
  BATON_ASSIGN(host->runner_,
               about(host->path_,
                     engine::make_runner(*host->file_,
                                         backends,
                                         {.block_tokens = config.kv.block_tokens,
                                          .max_context = config.model.context_length,
                                          .max_step_tokens = max_step_tokens,
                                          .kv_dtype = *dtype,
                                          .partial_sums = partial_sums_of(config),
                                          .arena = host->kv_->arena(),
                                          .packed_cache = packed_cache(config.model, log)})));
  if (const std::string note = backends.front()->arena_note(host->kv_->arena()); !note.empty()) {
    log.info("{}", note);
  }
  // The gateway refuses what is longer than a decode node's memory.
  const std::uint64_t held = std::uint64_t{blocks} * layout.block_tokens;
  if (const std::uint32_t context = host->runner_->info().context_length; held < context) {
    log.info(
        "kv.arena_mb {} holds {} tokens: requests are at most that long, though the model's "
        "context is {}; raise kv.arena_mb for longer ones",
        config.kv.arena_mb,
        held,
        context);
  }
  BATON_ASSIGN(const double tokens_per_s, warm_up(*host->runner_, *host->kv_));
  host->digest_ = digest_for(transfer.digest, layout, tokens_per_s);
  if (may_draft && config.decode.speculation.mode == "draft") {
    BATON_TRY(host->load_draft(config, tokenizer.hash()));
  }
  host->populator_ = std::make_unique<engine::ArenaPopulator>(host->kv_->arena());
  host->artifacts_.add("tokenizer", tokenizer.serialize());
  host->identity_ = make_model_identity(
      config.model.id, host->runner_->info(), tokenizer.hash(), changed_at(host->path_));
  return host;
}

Status ModelHost::load_draft(const ClusterConfig& config, std::uint64_t tokenizer_hash) {
  const DecodeSection& decode = config.decode;
  const std::string& name = decode.speculation.draft_model;
  const bool is_path = is_model_path(name);
  ModelSection section;
  section.id = name;
  section.path = is_path ? name : "";
  BATON_ASSIGN(const std::string path,
               resolve_model_path(section, CataloguePlaces::from_environment()));
  BATON_ASSIGN(draft_file_, engine::ModelFile::open(path));
  BATON_ASSIGN(const engine::TokenizerSpec tokenizer, draft_file_->tokenizer_spec());
  if (tokenizer.hash() != tokenizer_hash) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: its tokenizer is not that of {}; decode.speculation.draft_model "
                            "needs a model with the same one",
                            path,
                            path_));
  }
  const std::uint32_t chunk = decode.local_prefill_chunk;
  const std::uint32_t rows = chunk + decode.max_batch * engine::DraftModel::kSteady;
  BATON_ASSIGN(
      draft_runner_,
      about(path,
            engine::make_runner(*draft_file_,
                                *backends_.front(),
                                {.block_tokens = config.kv.block_tokens,
                                 .max_context = config.model.context_length,
                                 .max_step_tokens = std::max(rows, config.kv.block_tokens)})));
  if (draft_runner_->info().vocab_size != runner_->info().vocab_size) {
    return fail(ErrorCode::InvalidModel,
                fmt::format("{}: a vocabulary of {}, and {} has {}",
                            path,
                            draft_runner_->info().vocab_size,
                            path_,
                            runner_->info().vocab_size));
  }
  const KvLayout& layout = draft_runner_->info().layout;
  BATON_ASSIGN(const std::uint32_t blocks,
               engine::blocks_in(layout, decode.speculation.draft_arena_mb));
  BATON_ASSIGN(
      auto kv,
      engine::KvMemory::create(
          layout, {.num_blocks = blocks, .prefix_cache = false, .available_memory = std::nullopt}));
  BATON_TRY(warm_up(*draft_runner_, *kv));
  draft_ = std::make_unique<engine::DraftModel>(*draft_runner_, std::move(kv), chunk);
  speculative_ = std::make_unique<engine::SpeculativeRunner>(*runner_, *draft_);
  return {};
}

std::string ModelHost::describe() const {
  const engine::ModelInfo& info = runner_->info();
  return fmt::format(
      "{} ({}, {} MiB packed, context {}){}, {}, {} KV blocks of {} KiB {}, UCX {}, digest {}",
      identity_.id(),
      info.architecture,
      info.weight_bytes >> 20,
      info.context_length,
      draft_file_ == nullptr
          ? std::string()
          : fmt::format(", drafts by {} MiB packed", draft_runner_->info().weight_bytes >> 20),
      backends_.size() == 1
          ? backends_.front()->description()
          : fmt::format("{} ranks of {}", backends_.size(), backends_.front()->description()),
      kv_->pool().total(),
      kv_->layout().block_bytes_all_layers() >> 10,
      to_string(kv_->layout().dtype),
      transport_->ucx_version(),
      to_string(digest_));
}

}  // namespace baton::node
