#include "bench/transfer/transfer_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/transfer/transfer_pair.h"

namespace baton::bench {
namespace {

constexpr std::size_t kBytesOfRow = std::size_t{64} << 20;

Result<TransferBenchRow> run_row(const TransferBenchOptions& options,
                                 const std::string& transport,
                                 std::size_t bytes,
                                 std::uint32_t descriptors) {
  BATON_ASSIGN(const auto pair,
               TransferPair::create({.probe = options.probe,
                                     .transport = transport,
                                     .bytes = bytes,
                                     .descriptors = descriptors,
                                     .window_bytes = options.window_bytes}));
  enum Side : std::size_t { kOurs, kAm, kPut, kSides };
  std::array<Turns, kSides> turns;
  Turns copies;
  for (std::uint32_t i = 0; i <= options.repetitions; ++i) {  // the first turns warm up
    for (std::size_t j = 0; j < kSides; ++j) {
      const std::size_t side = (i + j) % kSides;
      Turn turn;
      for (int again = 0; again < 2; ++again) {  // the first warms caches and connections again
        BATON_ASSIGN(turn,
                     side == kOurs ? pair->turn_ours()
                     : side == kAm ? pair->turn_raw_am()
                                   : pair->turn_raw_put());
      }
      if (i > 0) {
        turns[side].add(turn);
      } else if (side == kOurs) {
        BATON_ASSIGN(const bool is_right, pair->verify());
        if (!is_right) {
          return fail(ErrorCode::ChecksumMismatch, "a transfer brought wrong bytes");
        }
      }
    }
    copies.add(pair->turn_memcpy());
  }
  const double total = static_cast<double>(bytes) * descriptors;
  const auto speed = [total](const Turns& of) { return total / of.seconds() * 1e-9; };
  const auto cpu = [total](const Turns& of) {
    return of.cpu_seconds() / (total / static_cast<double>(1 << 30));
  };
  const Turns& raw = turns[kAm].seconds() < turns[kPut].seconds() ? turns[kAm] : turns[kPut];
  TransferBenchRow row;
  row.transport = transport;
  row.bytes = bytes;
  row.descriptors = descriptors;
  row.gb_per_s = speed(turns[kOurs]);
  row.raw_gb_per_s = speed(raw);
  row.raw_put_gb_per_s = speed(turns[kPut]);
  row.raw_am_gb_per_s = speed(turns[kAm]);
  row.memcpy_gb_per_s = speed(copies);
  row.ratio_to_raw = row.gb_per_s / row.raw_gb_per_s;
  row.us_per_op = turns[kOurs].seconds() * 1e6 / descriptors;
  row.raw_us_per_op = raw.seconds() * 1e6 / descriptors;
  row.cpu_s_per_gib = cpu(turns[kOurs]);
  row.raw_cpu_s_per_gib = cpu(raw);
  row.spread = turns[kOurs].spread();
  return row;
}

std::vector<std::uint32_t> counts_for(const TransferBenchOptions& options, std::size_t bytes) {
  if (!options.descriptors.empty() || bytes == 0) {
    return options.descriptors.empty() ? std::vector<std::uint32_t>{1} : options.descriptors;
  }
  if (bytes == 4096) {
    return {1, 16, 256, 4096, 16384};
  }
  return {static_cast<std::uint32_t>(std::clamp<std::size_t>(kBytesOfRow / bytes, 1, 4096))};
}

}  // namespace

Result<std::vector<TransferBenchRow>> run_transfer_bench(const TransferBenchOptions& options) {
  if (options.repetitions == 0) {
    return fail(ErrorCode::InvalidArgument, "at least one repetition is needed");
  }
  std::vector<TransferBenchRow> rows;
  for (const std::string& transport : options.transports) {
    for (const std::size_t bytes : options.sizes) {
      for (const std::uint32_t count : counts_for(options, bytes)) {
        BATON_ASSIGN(TransferBenchRow row, run_row(options, transport, bytes, count));
        if (options.progress) {
          options.progress(
              fmt::format("{} {} x {}: {:.2f} GB/s, raw put {:.2f}, raw active messages {:.2f}",
                          transport,
                          count,
                          bytes,
                          row.gb_per_s,
                          row.raw_put_gb_per_s,
                          row.raw_am_gb_per_s));
        }
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

std::string to_json(const std::vector<TransferBenchRow>& rows) {
  std::string out = "{\"rows\": [";
  for (const TransferBenchRow& row : rows) {
    out += fmt::format(
        "{}{{\"transport\": \"{}\", \"bytes\": {}, \"descriptors\": {}, \"gb_per_s\": {:.4f}, "
        "\"raw_gb_per_s\": {:.4f}, \"ratio_to_raw\": {:.4f}, \"us_per_op\": {:.4f}, "
        "\"cpu_s_per_gib\": {:.4f}, \"raw_put_gb_per_s\": {:.4f}, \"raw_am_gb_per_s\": {:.4f}, "
        "\"memcpy_gb_per_s\": {:.4f}, \"raw_us_per_op\": {:.4f}, \"raw_cpu_s_per_gib\": {:.4f}, "
        "\"spread\": {:.4f}}}",
        &row == rows.data() ? "" : ", ",
        row.transport,
        row.bytes,
        row.descriptors,
        row.gb_per_s,
        row.raw_gb_per_s,
        row.ratio_to_raw,
        row.us_per_op,
        row.cpu_s_per_gib,
        row.raw_put_gb_per_s,
        row.raw_am_gb_per_s,
        row.memcpy_gb_per_s,
        row.raw_us_per_op,
        row.raw_cpu_s_per_gib,
        row.spread);
  }
  return out + "]";
}

}  // namespace baton::bench
