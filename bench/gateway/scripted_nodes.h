// A prefill and a decode node without an engine, for benchmarks of the gateway: they answer at once
// or at a set pace, and every token is the same word. The gateway sees real frames on real
// connections.
//
// Owner: baton-gateway-probe, which runs them in a process of their own. Thread: one control
// thread. Failure: a gateway that refuses them ends the process with its message.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/error.h"

namespace baton::bench {

// The word that every token of an answer is, and the text to count in answers.
inline constexpr std::string_view kAnswerWord = " river";
inline constexpr std::string_view kAnswerMark = "river";

struct ScriptedNodesOptions {
  std::string gateway;                     // its control address
  std::string token;                       // of the cluster
  std::string model;                       // file whose tokenizer and template are served
  std::chrono::milliseconds prefill{0};    // Prefill to first token
  std::chrono::milliseconds token_gap{0};  // between two tokens of an answer; 0: no pause
  std::uint32_t max_batch = 20'000;        // more sequences are answered by Busy
  std::uint32_t credits = 20'000;
};

// Serves until the process is ended; returns only with an error.
Status run_scripted_nodes(const ScriptedNodesOptions& options);

}  // namespace baton::bench
