#include "bench/transfer/transfer_pair.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <span>

#include "bench/stopwatch.h"

namespace baton::bench {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::string transfer_probe_program(const std::string& given) {
  if (!given.empty()) {
    return given;
  }
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path() /
         "baton-transfer-probe";
}

Result<std::unique_ptr<TransferPair>> TransferPair::create(const TransferPairOptions& options) {
  std::unique_ptr<TransferPair> pair(new TransferPair(options));
  BATON_TRY(pair->start());
  return pair;
}

Status TransferPair::start() {
  BATON_ASSIGN(arena_, TransferArena::create(options_.bytes, options_.descriptors));
  BATON_ASSIGN(copy_, TransferArena::create(options_.bytes, options_.descriptors));
  const KvArenaView& arena = arena_->view();
  for (std::size_t i = 0; i < arena.bytes(); ++i) {
    arena.base[i] = static_cast<std::byte>((i * 2654435761U) >> 24);
  }
  BATON_ASSIGN(process_,
               TransferProcess::start({transfer_probe_program(options_.probe),
                                       options_.transport,
                                       std::to_string(options_.bytes),
                                       std::to_string(options_.descriptors),
                                       "1",
                                       options_.raw ? "raw" : "plain",
                                       "half"}));
  half_.emplace(Half::First);  // after the child was started: it takes the other half
  transfer::TransportOptions settings;
  settings.transport = options_.transport;
  settings.window_bytes = options_.window_bytes;
  BATON_ASSIGN(ours_, transfer::Transport::create(settings, arena));
  if (options_.raw) {
    BATON_ASSIGN(am_, make_raw_am(options_.transport, arena));
    BATON_ASSIGN(put_, make_raw_put(options_.transport, arena));
  }
  BATON_ASSIGN(std::istringstream ready, process_->hear("ready"));
  std::string ours;
  std::string am;
  std::string put;
  ready >> ours >> am >> put;
  const std::string address = from_hex(ours);
  BATON_ASSIGN(peer_, ours_->connect(std::as_bytes(std::span(address)), nullptr));
  if (options_.raw) {
    BATON_TRY(am_->connect(am));
    BATON_TRY(put_->connect(put));
  }
  return {};
}

Result<Turn> TransferPair::turn_ours() {
  KvGrant grant;
  grant.lease = {++leases_, 77};
  grant.epoch = Epoch{1};
  grant.layout_hash = arena_->view().layout.hash();
  // Backwards there, forwards here: no two descriptors merge.
  std::vector<BlockId> blocks;
  for (std::uint32_t i = 0; i < options_.descriptors; ++i) {
    grant.runs.push_back({BlockId{options_.descriptors - 1 - i}, 1});
    blocks.emplace_back(i);
  }
  process_->say(fmt::format("ours {}", leases_));
  BATON_ASSIGN([[maybe_unused]] const auto opened, process_->hear("open"));
  const double cpu = process_cpu_seconds();
  const auto begin = Clock::now();
  BATON_ASSIGN(const auto sender, ours_->begin(peer_, grant));
  sender->send_layer(0, 0, std::move(blocks));
  std::promise<Result<transfer::Sent>> flushed;
  sender->finish([&](Result<transfer::Sent> sent) { flushed.set_value(std::move(sent)); });
  BATON_ASSIGN([[maybe_unused]] const auto sent, flushed.get_future().get());
  return landed(begin, cpu);
}

Result<Turn> TransferPair::turn_raw_am() {
  process_->say(fmt::format("am {}", options_.descriptors));
  BATON_ASSIGN([[maybe_unused]] const auto opened, process_->hear("open"));
  const double cpu = process_cpu_seconds();
  const auto begin = Clock::now();
  BATON_TRY(am_->send(options_.descriptors, options_.window_bytes));
  return landed(begin, cpu);
}

Result<Turn> TransferPair::turn_raw_put() {
  process_->say("put 0");
  BATON_ASSIGN([[maybe_unused]] const auto opened, process_->hear("open"));
  const double cpu = process_cpu_seconds();
  const auto begin = Clock::now();
  BATON_TRY(put_->send(options_.descriptors, options_.window_bytes));
  const double seconds = seconds_since(begin);
  process_->say("stop");
  BATON_ASSIGN(Turn turn, landed(begin, cpu));
  turn.seconds = seconds;
  return turn;
}

Turn TransferPair::turn_memcpy() {
  const KvArenaView& from = arena_->view();
  const KvArenaView& to = copy_->view();
  const double cpu = process_cpu_seconds();
  const auto begin = Clock::now();
  for (std::uint32_t i = 0; i < options_.descriptors; ++i) {
    std::memcpy(to.block(0, BlockId{options_.descriptors - 1 - i}),
                from.block(0, BlockId{i}),
                options_.bytes);
  }
  return {.seconds = seconds_since(begin), .cpu_seconds = process_cpu_seconds() - cpu};
}

Result<bool> TransferPair::verify() {
  process_->say("digest 0");
  BATON_ASSIGN(std::istringstream words, process_->hear("digest"));
  std::uint64_t theirs = 0;
  words >> theirs;
  turn_memcpy();  // arranges a copy as the other side has it
  return theirs == XXH3_64bits(copy_->view().base, copy_->view().bytes());
}

Result<Turn> TransferPair::landed(Clock::time_point begin, double cpu) {
  BATON_ASSIGN(std::istringstream words, process_->hear("landed"));
  Turn turn;
  turn.seconds = seconds_since(begin);
  words >> turn.cpu_seconds;
  turn.cpu_seconds += process_cpu_seconds() - cpu;
  return turn;
}

}  // namespace baton::bench
