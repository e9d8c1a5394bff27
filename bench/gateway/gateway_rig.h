// The processes of `baton bench gateway`: a real baton-gateway on a processor of its own, scripted
// nodes on the other, or a bare server in the gateway's place; and what the kernel and the gateway
// itself say they took.
//
// Owner: the benchmark. Thread: one (children die with it). Failure: `start` says what kept a
// process from serving, with its last log lines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/cluster/free_port.h"
#include "cli/process/child_process.h"
#include "common/base/error.h"
#include "common/base/host_port.h"

namespace baton::bench {

struct RigOptions {
  std::string bin_folder;
  std::string run_folder;        // configuration and logs; made when missing
  std::string model;             // file whose tokenizer the nodes serve
  unsigned gateway_core = 0;     // of the gateway or the bare server
  unsigned other_core = 0;       // of everything else
  std::vector<std::string> set;  // KEY=VALUE over the gateway's configuration
};

// How the scripted nodes answer.
struct NodePace {
  unsigned prefill_ms = 0;
  unsigned token_gap_ms = 0;  // 0: as fast as the gateway takes them
  unsigned max_batch = 20'000;
  unsigned credits = 20'000;
};

// Of one process since its start.
struct ProcessUse {
  double cpu_us = 0;
  double rss_kib = 0;
};
ProcessUse use_of(pid_t process);

// CPU time that requests have cost before they were queued, as the gateway counts it: all of them
// together.
struct PromptCost {
  double parse_us = 0;
  double template_us = 0;
  double tokenize_us = 0;
  PromptCost operator-(const PromptCost& other) const;
};

class GatewayRig {
 public:
  static Result<std::unique_ptr<GatewayRig>> start(const RigOptions& options, const NodePace& pace);
  GatewayRig(const GatewayRig&) = delete;
  GatewayRig& operator=(const GatewayRig&) = delete;

  const HostPort& api() const { return api_.address(); }
  ProcessUse use() const { return use_of(gateway_->pid()); }
  pid_t pid() const { return gateway_->pid(); }
  Result<PromptCost> prompt_cost() const;

 private:
  GatewayRig() = default;

  cli::HeldAddress api_;
  cli::HeldAddress admin_;  // its metrics
  cli::HeldAddress control_;
  std::unique_ptr<cli::ChildProcess> gateway_;
  std::unique_ptr<cli::ChildProcess> nodes_;
};

class BareRig {
 public:
  static Result<std::unique_ptr<BareRig>> start(const RigOptions& options,
                                                const std::string& answer,
                                                unsigned core);
  const HostPort& api() const { return api_.address(); }
  ProcessUse use() const { return use_of(server_->pid()); }

 private:
  BareRig() = default;

  cli::HeldAddress api_;
  std::unique_ptr<cli::ChildProcess> server_;
};

// Another project's proxy in the gateway's place, before a bare server on the other processor. It
// forwards bytes: it neither tokenizes nor knows what its workers hold.
class PeerRig {
 public:
  // "nginx", "sglang-router", "vllm-router". NotFound when it is not installed.
  static Result<std::unique_ptr<PeerRig>> start(const RigOptions& options,
                                                const std::string& peer,
                                                const std::string& answer);
  const HostPort& api() const { return api_.address(); }
  ProcessUse use() const { return use_of(peer_->pid()); }

 private:
  PeerRig() = default;

  cli::HeldAddress api_;
  std::unique_ptr<BareRig> worker_;
  std::unique_ptr<cli::ChildProcess> peer_;
};

}  // namespace baton::bench
