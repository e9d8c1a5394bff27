#include "bench/route/trace.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "bench/route/noise.h"

namespace baton::bench {
namespace {

constexpr std::uint64_t kMaxTokens = 1U << 24U;

Result<TraceRequest> parse_line(simdjson::dom::parser& parser, std::string_view line) {
  simdjson::dom::object object;
  simdjson::dom::array ids;
  double at_ms = 0;
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  if (parser.parse(line.data(), line.size()).get(object) != simdjson::SUCCESS) {
    return fail(ErrorCode::InvalidArgument, "is no JSON object");
  }
  if (object["timestamp"].get(at_ms) != simdjson::SUCCESS || !(at_ms >= 0)) {
    return fail(ErrorCode::InvalidArgument, "'timestamp' must be a number of milliseconds");
  }
  if (object["input_length"].get(input) != simdjson::SUCCESS || input == 0 || input > kMaxTokens) {
    return fail(ErrorCode::InvalidArgument, "'input_length' must be a number of tokens from 1");
  }
  if (object["output_length"].get(output) != simdjson::SUCCESS || output > kMaxTokens) {
    return fail(ErrorCode::InvalidArgument, "'output_length' must be a number of tokens");
  }
  if (object["hash_ids"].get(ids) != simdjson::SUCCESS) {
    return fail(ErrorCode::InvalidArgument, "'hash_ids' must be a list of numbers");
  }
  TraceRequest request;
  request.at_s = at_ms / 1e3;
  request.input_length = static_cast<std::uint32_t>(input);
  request.output_length = std::max(1U, static_cast<std::uint32_t>(output));
  for (const simdjson::dom::element id : ids) {
    std::uint64_t number = 0;
    if (id.get(number) != simdjson::SUCCESS) {
      return fail(ErrorCode::InvalidArgument, "'hash_ids' must be a list of numbers");
    }
    request.blocks.push_back(number);
  }
  // A block that is not full is never kept.
  request.blocks.resize(
      std::min<std::size_t>(request.blocks.size(), request.input_length / kTraceBlock));
  return request;
}

// Half to one and a half times the number.
std::uint32_t around(Noise& noise, std::uint32_t number) {
  return std::max(1U, static_cast<std::uint32_t>(number * (0.5 + noise.uniform())));
}

}  // namespace

Result<Trace> parse_trace(std::string_view lines) {
  Trace trace;
  simdjson::dom::parser parser;
  for (std::size_t number = 1; !lines.empty(); ++number) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    auto request = parse_line(parser, line);
    if (!request) {
      return fail(request.error().code,
                  fmt::format("line {}: {}", number, request.error().message));
    }
    trace.push_back(std::move(*request));
  }
  if (trace.empty()) {
    return fail(ErrorCode::InvalidArgument, "the trace has no request");
  }
  std::ranges::stable_sort(trace, {}, &TraceRequest::at_s);
  return trace;
}

Result<Trace> read_trace(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return fail(ErrorCode::NotFound, fmt::format("cannot read '{}'", path));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto trace = parse_trace(text);
  if (!trace) {
    return fail(trace.error().code, fmt::format("{}: {}", path, trace.error().message));
  }
  return trace;
}

std::string to_jsonl(const Trace& trace) {
  std::string out;
  for (const TraceRequest& request : trace) {
    out += fmt::format(
        "{{\"timestamp\":{:.0f},\"input_length\":{},\"output_length\":{},\"hash_ids\":[{}]}}\n",
        request.at_s * 1e3,
        request.input_length,
        request.output_length,
        fmt::join(request.blocks, ","));
  }
  return out;
}

Trace make_trace(const TraceShape& shape) {
  Noise noise(shape.seed);
  std::uint64_t next_block = 1;
  std::vector<std::vector<std::uint64_t>> prefixes(std::max(1U, shape.groups));
  std::vector<double> up_to;  // sums of popularity
  double sum = 0;
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    for (std::uint32_t left = around(noise, shape.prefix_blocks); left > 0; --left) {
      prefixes[i].push_back(next_block++);
    }
    up_to.push_back(sum += std::pow(static_cast<double>(i + 1), -shape.zipf));
  }
  Trace trace;
  double at = 0;
  for (std::uint32_t i = 0; i < shape.requests; ++i) {
    at += -std::log(1 - noise.uniform()) / shape.rate;
    const auto group = static_cast<std::size_t>(
        std::ranges::upper_bound(up_to, noise.uniform() * sum) - up_to.begin());
    TraceRequest request;
    request.at_s = at;
    request.blocks = prefixes[std::min(group, prefixes.size() - 1)];
    const std::uint32_t own = around(noise, shape.own_tokens);
    request.input_length = static_cast<std::uint32_t>(request.blocks.size()) * kTraceBlock + own;
    for (std::uint32_t left = own / kTraceBlock; left > 0; --left) {
      request.blocks.push_back(next_block++);
    }
    request.output_length = around(noise, shape.output_tokens);
    trace.push_back(std::move(request));
  }
  return trace;
}

std::size_t shared_blocks(const Trace& trace) {
  std::unordered_map<std::uint64_t, std::uint32_t> users;
  for (const TraceRequest& request : trace) {
    for (const std::uint64_t block : request.blocks) {
      ++users[block];
    }
  }
  return static_cast<std::size_t>(
      std::ranges::count_if(users, [](const auto& entry) { return entry.second > 1; }));
}

double unlimited_hit_rate(const Trace& trace, std::size_t first) {
  std::unordered_set<std::uint64_t> seen;
  double held = 0;
  double all = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const TraceRequest& request = trace[i];
    std::size_t blocks = 0;
    while (blocks < request.blocks.size() && seen.contains(request.blocks[blocks])) {
      ++blocks;
    }
    seen.insert(request.blocks.begin(), request.blocks.end());
    if (i < first) {
      continue;
    }
    held +=
        static_cast<double>(std::min<std::size_t>(blocks * kTraceBlock, request.input_length - 1));
    all += request.input_length;
  }
  return all == 0 ? 0 : held / all;
}

}  // namespace baton::bench
