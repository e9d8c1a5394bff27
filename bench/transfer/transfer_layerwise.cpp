#include "bench/transfer/transfer_layerwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/spread.h"
#include "bench/transfer/raw_ucx.h"
#include "bench/transfer/transfer_pair.h"
#include "bench/transfer/transfer_process.h"
#include "common/config/cluster_config.h"
#include "engine/kv/kv_memory.h"
#include "engine/model/model.h"
#include "engine/step/planner.h"
#include "engine/step/sequence.h"
#include "transfer/transport.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// One prompt, computed once.
struct Pass {
  std::uint32_t chunks = 0;
  std::uint64_t bytes = 0;
  double prefill_ms = 0;
  double hidden_share = 0;
  double hidden_share_at_end = 0;
  double commit_ms = 0;
  double landed_ms = 0;
};

class Layerwise {
 public:
  explicit Layerwise(const LayerwiseOptions& options) : options_(options) {}

  Status start() {
    BATON_ASSIGN(file_, engine::ModelFile::open(options_.model));
    BATON_ASSIGN(backend_, kernels::make_cpu_backend({.threads = options_.threads}));
    const PrefillSection defaults;
    limits_.chunk_tokens =
        options_.chunk_tokens == 0 ? defaults.chunk_tokens : options_.chunk_tokens;
    limits_.step_tokens = std::max(defaults.step_tokens, limits_.chunk_tokens);
    BATON_ASSIGN(runner_,
                 engine::make_runner(*file_, *backend_, {.max_step_tokens = limits_.step_tokens}));
    const KvLayout& layout = runner_->info().layout;
    blocks_ = layout.blocks_for(options_.prompt_tokens);
    BATON_ASSIGN(kv_, engine::KvMemory::create(layout, {.num_blocks = blocks_}));
    BATON_ASSIGN(process_,
                 TransferProcess::start({transfer_probe_program(options_.probe),
                                         options_.transport,
                                         std::to_string(layout.block_bytes()),
                                         std::to_string(blocks_),
                                         std::to_string(layout.layers),
                                         "plain"}));
    transfer::TransportOptions settings;
    settings.transport = options_.transport;
    BATON_ASSIGN(transport_, transfer::Transport::create(settings, kv_->arena()));
    BATON_ASSIGN(std::istringstream ready, process_->hear("ready"));
    std::string inlet;
    ready >> inlet;
    const std::string address = from_hex(inlet);
    BATON_ASSIGN(peer_, transport_->connect(std::as_bytes(std::span(address)), nullptr));
    return {};
  }

  // Without a digest mode nothing is transferred.
  Result<Pass> compute(std::optional<transfer::DigestMode> digest) {
    GenerateRequest request;
    for (std::uint32_t i = 0; i < options_.prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(1000 + i * 7919 % 40'000));
    }
    request.sampling.temperature = 0;
    const engine::ModelInfo& info = runner_->info();
    BATON_ASSIGN(const engine::RequestSize size,
                 engine::check_size(request, info.context_length, info.vocab_size));
    BATON_ASSIGN(auto leases, kv_->acquire(blocks_));
    engine::Sequence sequence(
        std::move(request), size, engine::BlockTable({}, std::move(leases)), 0);
    std::unique_ptr<transfer::LeaseSender> sender;
    if (digest) {
      BATON_ASSIGN(sender, open(*digest));
    }
    Pass pass;
    const std::uint64_t sent_before = transport_->stats().bytes_sent;
    std::uint64_t sent_at_last_layer = 0;
    const auto begin = Clock::now();
    for (bool is_last = false; !is_last;) {
      std::vector<engine::Sequence*> sequences{&sequence};
      const auto planned = engine::plan_prefill(sequences, limits_);
      const std::uint32_t count = planned[0].count;
      is_last = count == sequence.num_pending();
      const std::uint32_t first = sequence.computed() / info.layout.block_tokens;
      const std::uint32_t end =
          is_last ? blocks_ : (sequence.computed() + count) / info.layout.block_tokens;
      const std::vector<BlockId> blocks(sequence.table().ids().begin() + first,
                                        sequence.table().ids().begin() + end);
      const auto layer_done = [&](std::uint32_t layer) {
        if (is_last && layer + 1 == info.layout.layers) {
          sent_at_last_layer = transport_->stats().bytes_sent;
        }
        if (sender != nullptr) {
          sender->send_layer(layer, first, blocks);
        }
      };
      const auto result = runner_->run(engine::to_step_plan(planned), kv_->arena(), layer_done);
      sequence.advance(count, result.sampled[0] ? &*result.sampled[0] : nullptr);
      ++pass.chunks;
    }
    pass.prefill_ms = ms_since(begin);
    if (digest) {
      BATON_TRY(finish(*sender, sent_before, sent_at_last_layer, pass));
    }
    return pass;
  }

  // Over every block of the prompt, as they lie in the arena.
  double digest_gb_per_s() const {
    const KvArenaView& arena = kv_->arena();
    transfer::BlockDigest all({1, 1}, transfer::DigestMode::All);
    const auto begin = Clock::now();
    for (std::uint32_t layer = 0; layer < arena.layout.layers; ++layer) {
      for (std::uint32_t block = 0; block < arena.num_blocks; ++block) {
        all.add(layer, block, {arena.block(layer, BlockId{block}), arena.layout.block_bytes()});
      }
    }
    const double seconds = ms_since(begin) * 1e-3;
    return all.value() == 0 ? 0 : static_cast<double>(arena.bytes()) / seconds * 1e-9;
  }

  const engine::PrefillLimits& limits() const { return limits_; }

 private:
  Result<std::unique_ptr<transfer::LeaseSender>> open(transfer::DigestMode digest) {
    KvGrant grant;
    grant.lease = {++leases_, 77};
    grant.epoch = Epoch{1};
    grant.layout_hash = kv_->layout().hash();
    grant.runs.push_back({BlockId{0}, blocks_});
    process_->say(fmt::format("lease {} {}", leases_, static_cast<unsigned>(digest)));
    BATON_ASSIGN([[maybe_unused]] const auto opened, process_->hear("open"));
    return transport_->begin(peer_, grant, digest);
  }

  Status finish(transfer::LeaseSender& sender,
                std::uint64_t sent_before,
                std::uint64_t sent_at_last_layer,
                Pass& pass) {
    const std::uint64_t sent_at_end = transport_->stats().bytes_sent;
    const auto begin = Clock::now();
    std::promise<Result<transfer::Sent>> flushed;
    sender.finish([&](Result<transfer::Sent> sent) { flushed.set_value(std::move(sent)); });
    BATON_ASSIGN(const transfer::Sent sent, flushed.get_future().get());
    pass.bytes = sent.bytes;
    pass.commit_ms = ms_since(begin);
    process_->say(
        fmt::format("commit {} {}", static_cast<unsigned>(sent.digest_mode), sent.digest));
    BATON_ASSIGN([[maybe_unused]] const auto landed, process_->hear("landed"));
    pass.landed_ms = ms_since(begin);
    const auto share = [&](std::uint64_t sent) {
      return static_cast<double>(sent - sent_before) / static_cast<double>(pass.bytes);
    };
    pass.hidden_share = share(sent_at_last_layer);
    pass.hidden_share_at_end = share(sent_at_end);
    return {};
  }

  const LayerwiseOptions& options_;
  std::unique_ptr<const engine::ModelFile> file_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<engine::ModelRunner> runner_;
  engine::PrefillLimits limits_;
  std::uint32_t blocks_ = 0;
  std::unique_ptr<engine::KvMemory> kv_;
  std::unique_ptr<TransferProcess> process_;
  std::unique_ptr<transfer::Transport> transport_;
  std::shared_ptr<transfer::Peer> peer_;
  std::uint32_t leases_ = 0;
};

}  // namespace

Result<LayerwiseReport> run_layerwise(const LayerwiseOptions& options) {
  if (options.repetitions == 0 || options.prompt_tokens == 0) {
    return fail(ErrorCode::InvalidArgument, "at least one repetition and one token are needed");
  }
  Layerwise bench(options);
  BATON_TRY(bench.start());
  std::vector<Pass> passes;
  std::vector<double> alone;
  std::vector<double> costs;
  for (std::uint32_t i = 0; i <= options.repetitions; ++i) {  // the first passes warm up
    // Off and all in turns, each as often first as second.
    Pass off;
    Pass all;
    for (const bool is_all : {i % 2 == 0, i % 2 != 0}) {
      const auto mode = is_all ? transfer::DigestMode::All : transfer::DigestMode::Off;
      BATON_ASSIGN((is_all ? all : off), bench.compute(mode));
    }
    if (i % 3 == 0) {
      BATON_ASSIGN(const Pass without, bench.compute(std::nullopt));
      alone.push_back(without.prefill_ms);
    }
    if (options.progress) {
      options.progress(
          fmt::format("prefill {:.0f} ms, {:.1f} % of the bytes gone before its last layer's end, "
                      "commit {:.2f} ms later; with digests {:.0f} ms",
                      off.prefill_ms,
                      off.hidden_share * 100,
                      off.commit_ms,
                      all.prefill_ms));
    }
    if (i > 0) {
      passes.push_back(off);
      costs.push_back((all.prefill_ms + all.landed_ms - off.prefill_ms - off.landed_ms) /
                      off.prefill_ms);
    }
  }
  const auto middle = [&](double Pass::*field) {
    std::vector<double> values;
    for (const Pass& pass : passes) {
      values.push_back(pass.*field);
    }
    return median(std::move(values));
  };
  LayerwiseReport report;
  report.transport = options.transport;
  report.prompt_tokens = options.prompt_tokens;
  report.chunk_tokens = bench.limits().chunk_tokens;
  report.chunks = passes[0].chunks;
  report.bytes = passes[0].bytes;
  report.hidden_share = middle(&Pass::hidden_share);
  report.hidden_share_at_end = middle(&Pass::hidden_share_at_end);
  report.prefill_ms = middle(&Pass::prefill_ms);
  report.alone_ms = median(alone);
  report.commit_ms = middle(&Pass::commit_ms);
  report.landed_ms = middle(&Pass::landed_ms);
  report.digest_cost_share = median(costs);
  report.digest_cost_spread = quantile(costs, 0.75) - quantile(costs, 0.25);
  report.digest_gb_per_s = bench.digest_gb_per_s();
  const double digest_ms = 2 * static_cast<double>(report.bytes) / report.digest_gb_per_s * 1e-6;
  report.digest_raw_share = digest_ms / report.prefill_ms;
  return report;
}

std::string to_json(const LayerwiseReport& report) {
  return fmt::format(
      "{{\"transport\": \"{}\", \"prompt_tokens\": {}, \"chunk_tokens\": {}, \"chunks\": {}, "
      "\"bytes\": {}, \"hidden_share\": {:.4f}, \"hidden_share_at_end\": {:.4f}, "
      "\"prefill_ms\": {:.3f}, \"alone_ms\": {:.3f}, \"commit_ms\": {:.3f}, \"landed_ms\": {:.3f}, "
      "\"digest_cost_share\": {:.5f}, \"digest_cost_spread\": {:.5f}, "
      "\"digest_gb_per_s\": {:.3f}, \"digest_raw_share\": {:.5f}}}",
      report.transport,
      report.prompt_tokens,
      report.chunk_tokens,
      report.chunks,
      report.bytes,
      report.hidden_share,
      report.hidden_share_at_end,
      report.prefill_ms,
      report.alone_ms,
      report.commit_ms,
      report.landed_ms,
      report.digest_cost_share,
      report.digest_cost_spread,
      report.digest_gb_per_s,
      report.digest_raw_share);
}

}  // namespace baton::bench
