// A recorded load: when requests came, how long they are and which blocks of 512 tokens their
// prompts are made of. One JSON object a line: `timestamp` in ms, `input_length`, `output_length`,
// `hash_ids`, as published traces of serving systems have it. Also a trace made from numbers:
// groups of requests that begin alike, their popularity by Zipf's law, arrivals by Poisson's.
//
// Thread: plain values and functions. Failure: an unreadable file, or a line that is none of the
// above, gives an Error that names the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::bench {

inline constexpr std::uint32_t kTraceBlock = 512;  // tokens

struct TraceRequest {
  double at_s = 0;
  std::uint32_t input_length = 1;     // tokens
  std::uint32_t output_length = 1;    // tokens
  std::vector<std::uint64_t> blocks;  // names of the prompt's full blocks
  bool operator==(const TraceRequest&) const = default;
};
using Trace = std::vector<TraceRequest>;  // in order of time

Result<Trace> read_trace(const std::string& path);
Result<Trace> parse_trace(std::string_view lines);
std::string to_jsonl(const Trace& trace);

struct TraceShape {
  std::uint32_t requests = 12'000;
  double rate = 12;                   // requests a second
  std::uint32_t groups = 400;         // of requests with one prefix
  double zipf = 0.9;                  // popularity of the n-th group: n^-zipf
  std::uint32_t prefix_blocks = 12;   // of a group: half to one and a half times as many
  std::uint32_t own_tokens = 1024;    // behind the prefix, of one request: the same
  std::uint32_t output_tokens = 128;  // the same
  std::uint64_t seed = 1;
};
Trace make_trace(const TraceShape& shape);

// Different blocks that at least two requests have.
std::size_t shared_blocks(const Trace& trace);
// Share of the prompt tokens that a cache without limit, seen by all requests in turn, would have;
// of the requests from number `first` on.
double unlimited_hit_rate(const Trace& trace, std::size_t first = 0);

}  // namespace baton::bench
