// Load against any server of the OpenAI API: each request is sent when it is due, whether earlier
// ones were answered or not (an open loop), and its times count from that moment, so that a server
// that falls behind shows it. Tokens are timed by the kernel that got them.
//
// Goodput is what was asked for and came in time: whole answers whose first token kept the TTFT
// target and whose tokens kept the ITL target on average (time per output token after the first).
//
// Thread: the caller's. Failure: Unavailable when no request was answered; single failures are
// counted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/serve/load.h"
#include "common/base/error.h"
#include "common/base/host_port.h"

namespace baton::bench {

// Where the load goes.
struct ServeTarget {
  HostPort server;
  std::string base_path = "/v1";
  std::string model;
  std::string api_key;     // may be empty
  bool chat = false;       // chat completions of words; else completions of token ids
  bool ignore_eos = true;  // answers have the length asked for; OpenAI's own servers do not know it
};

// "http://host:port/v1" as server and path. InvalidArgument for others, TLS included.
Result<ServeTarget> parse_target(const std::string& base_url);

struct ServeProgress {
  std::size_t sent = 0;
  std::size_t ended = 0;
  std::size_t all = 0;
  double seconds = 0;
};

struct ServeOptions {
  ServeTarget target;
  Load load;
  // Texts to send in turn in place of made ones; `load` says when and how long the answers are.
  std::vector<std::string> prompts;
  // 0: an open loop. Else so many requests are out at a time and the load's times do not count.
  unsigned width = 0;
  std::uint64_t seed = 1;                              // of the prompts
  bool same_prompt = false;                            // one prompt for all
  double patience_s = 120;                             // after the last request was sent
  std::function<void(const ServeProgress&)> progress;  // about ten times a second; may be empty
};

// One request, times in seconds; those of tokens count from when it was due.
struct Served {
  double due_s = 0;   // after the start
  double late_s = 0;  // sent after it was due
  int status = 0;     // of HTTP; 0: none
  bool is_whole = false;
  std::uint32_t input_tokens = 0;  // as the server counts, else as planned
  std::uint32_t output_tokens = 0;
  double ttft_s = 0;
  double e2e_s = 0;
  std::vector<double> gaps_s;  // between events that brought text
  std::string error;           // of one that is not whole

  // Time per output token after the first; 0: there was none.
  double tpot_s() const { return output_tokens > 1 ? (e2e_s - ttft_s) / (output_tokens - 1) : 0; }
};

Result<std::vector<Served>> serve_load(const ServeOptions& options);

// The body of one request.
std::string request_body(const ServeTarget& target,
                         const PlannedRequest& request,
                         std::uint64_t seed,
                         const std::string* prompt);

}  // namespace baton::bench
