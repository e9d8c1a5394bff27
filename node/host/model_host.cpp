#include "node/host/model_host.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "common/config/catalogue.h"
#include "node/identity.h"

namespace baton::node {
namespace {

Result<std::unique_ptr<kernels::Backend>> make_backend(const EngineSection& engine) {
  if (engine.backend == "reference") {
    return kernels::make_reference_backend();
  }
  kernels::CpuOptions options;
  options.threads = engine.threads;
  if (engine.isa == "scalar") {
    options.isa = kernels::CpuIsa::Scalar;
  } else if (engine.isa == "avx2") {
    options.isa = kernels::CpuIsa::Avx2;
  } else if (engine.isa == "avx512") {
    options.isa = kernels::CpuIsa::Avx512;
  } else if (engine.isa == "amx") {
    options.isa = kernels::CpuIsa::Amx;
  }
  if (engine.float_path == "amx_bf16") {
    options.float_path = kernels::FloatPath::AmxBf16;
  }
  return kernels::make_cpu_backend(options);
}

// Cached blocks are of one model file, one numerics and one layout.
std::uint64_t prefix_salt(std::uint64_t weights_hash, std::uint64_t layout_hash) {
  const std::array<std::uint64_t, 2> parts{weights_hash, layout_hash};
  return XXH3_64bits(parts.data(), sizeof(parts));
}

// For /v1/models: when the file was last changed, so that every node says the same.
std::uint64_t changed_at(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_mtime) : 0;
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
                                                   std::uint32_t max_step_tokens) {
  std::unique_ptr<ModelHost> host(new ModelHost());
  BATON_ASSIGN(host->path_, resolve_model_path(config.model, CataloguePlaces::from_environment()));
  BATON_ASSIGN(host->file_, engine::ModelFile::open(host->path_));
  BATON_ASSIGN(const engine::TokenizerSpec tokenizer, host->file_->tokenizer_spec());
  BATON_ASSIGN(const KvLayout layout,
               about(host->path_, engine::kv_layout_of(*host->file_, config.kv.block_tokens)));
  BATON_ASSIGN(const std::uint32_t blocks, engine::blocks_in(layout, config.kv.arena_mb));
  BATON_ASSIGN(
      host->kv_,
      engine::KvMemory::create(layout,
                               {.num_blocks = blocks,
                                .salt = prefix_salt(host->file_->weights_hash(), layout.hash()),
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
  BATON_ASSIGN(host->backend_, make_backend(engine));
  BATON_ASSIGN(host->runner_,
               about(host->path_,
                     engine::make_runner(*host->file_,
                                         *host->backend_,
                                         {.block_tokens = config.kv.block_tokens,
                                          .max_context = config.model.context_length,
                                          .max_step_tokens = max_step_tokens})));
  BATON_ASSIGN(const double tokens_per_s, warm_up(*host->runner_, *host->kv_));
  host->digest_ = digest_for(transfer.digest, layout, tokens_per_s);
  host->artifacts_.add("tokenizer", tokenizer.serialize());
  host->identity_ = make_model_identity(
      config.model.id, host->runner_->info(), tokenizer.hash(), changed_at(host->path_));
  return host;
}

std::string ModelHost::describe() const {
  const engine::ModelInfo& info = runner_->info();
  return fmt::format(
      "{} ({}, {} MiB packed, context {}), {}, {} KV blocks of {} KiB, UCX {}, digest {}",
      identity_.id(),
      info.architecture,
      info.weight_bytes >> 20,
      info.context_length,
      backend_->description(),
      kv_->pool().total(),
      kv_->layout().block_bytes_all_layers() >> 10,
      transport_->ucx_version(),
      to_string(digest_));
}

}  // namespace baton::node
