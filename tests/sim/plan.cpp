#include "tests/sim/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::sim {
namespace {

void set_config(Plan& plan, Rng& rng) {
  ClusterConfig& config = plan.config;
  config.cluster.heartbeat = milliseconds(rng.between(80, 300));
  config.cluster.suspect_after = static_cast<std::uint32_t>(rng.between(2, 4));
  config.cluster.dead_after =
      config.cluster.suspect_after + static_cast<std::uint32_t>(rng.between(1, 4));
  config.prefill.chunk_tokens = static_cast<std::uint32_t>(rng.between(5, 64));
  config.prefill.step_tokens =
      config.prefill.chunk_tokens + static_cast<std::uint32_t>(rng.between(0, 64));
  config.prefill.credits = static_cast<std::uint32_t>(rng.between(1, 5));
  config.decode.max_batch = static_cast<std::uint32_t>(rng.between(1, 12));
  config.decode.local_prefill_max_tokens =
      rng.chance(0.25) ? static_cast<std::uint32_t>(rng.between(4, 40)) : 0;
  config.decode.expected_output_tokens =
      rng.chance(0.4) ? static_cast<std::uint32_t>(rng.between(1, 8)) : 0;
  config.decode.local_prefill_chunk = static_cast<std::uint32_t>(rng.between(3, 32));
  config.kv.prefix_cache = !rng.chance(0.15);
  plan.model.layers = static_cast<std::uint32_t>(rng.between(1, 3));
  plan.model.block_tokens = rng.pick(std::vector<std::uint32_t>{16, 16, 16, 32});
  config.kv.block_tokens = plan.model.block_tokens;
  plan.tracker.queue_limit = 256;
  plan.tracker.queue_timeout = seconds(rng.between(10, 40));
  plan.tracker.request_timeout = seconds(rng.between(20, 60));
  if (rng.chance(0.7)) {
    // No request gives up because too much went wrong.
    plan.tracker.failover.max_node_losses = 1000;
    plan.tracker.failover.max_faults = 1000;
  }
}

std::vector<TokenId> text(Rng& rng, std::size_t length) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>(rng.below(1000)));
  }
  return tokens;
}

void add_clients(Plan& plan, Rng& rng) {
  std::vector<std::vector<TokenId>> prefixes(1);
  for (std::uint64_t i = rng.between(0, 3); i > 0; --i) {
    prefixes.push_back(text(rng, rng.between(4, 128)));
  }
  const std::uint64_t count = rng.between(10, 60);
  const std::uint64_t longest_tail = rng.pick(std::vector<std::uint64_t>{8, 30, 60, 120});
  const std::uint64_t longest_output = rng.pick(std::vector<std::uint64_t>{4, 16, 40});
  const double cancels = rng.chance(0.6) ? 0.2 : 0;
  std::uint64_t id = 1;
  while (id <= count) {
    ClientPlan client;
    client.at = rng.between(Duration::zero(), plan.horizon);
    client.gateway = rng.below(plan.gateways);
    GenerateRequest& request = client.request;
    request.model = "scripted";
    request.prompt = rng.pick(prefixes);
    const auto tail = text(rng, rng.between(1, longest_tail));
    request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
    request.max_tokens = static_cast<std::uint32_t>(rng.between(1, longest_output));
    request.sampling.temperature = rng.chance(0.5) ? 0.0F : 1.0F;
    request.sampling.seed = rng.bits();
    request.sampling.num_logprobs = rng.chance(0.1) ? 2 : -1;
    if (rng.chance(0.15)) {
      client.stop_after = static_cast<std::uint32_t>(rng.between(1, request.max_tokens));
      client.wants_figures = rng.chance(0.5);
    }
    if (rng.chance(cancels)) {
      client.cancel_after = rng.chance(0.5) ? rng.between(Duration::zero(), milliseconds(60))
                                            : rng.between(Duration::zero(), seconds(2));
    } else if (rng.chance(cancels)) {
      client.cancel_after_tokens = static_cast<std::uint32_t>(rng.between(1, request.max_tokens));
    }
    // Choices of one client come together and share their prompt.
    const std::uint64_t choices = rng.chance(0.15) ? rng.between(2, 4) : 1;
    for (std::uint32_t choice = 0; choice < choices && id <= count; ++choice) {
      request.choice = choice;
      request.id = RequestId{id++};
      plan.clients.push_back(client);
    }
  }
}

// Every request fits every node, some of them only just.
void set_blocks(Plan& plan, Rng& rng) {
  std::size_t prompt = 1;
  std::size_t whole = 1;
  const std::uint32_t block_tokens = plan.model.block_tokens;
  for (const ClientPlan& client : plan.clients) {
    prompt = std::max(prompt, client.request.prompt.size() + client.request.max_tokens);
    whole = std::max(whole, client.request.prompt.size() + client.request.max_tokens);
  }
  for (NodePlan& node : plan.nodes) {
    const std::size_t tokens = node.role == "prefill" ? prompt : whole;
    const auto blocks = static_cast<std::uint32_t>(tokens / block_tokens + 2);
    node.num_blocks = blocks * static_cast<std::uint32_t>(rng.between(2, 12)) / 2;
  }
}

std::string any_node(const Plan& plan, Rng& rng) {
  return rng.pick(plan.nodes).name;
}

void add_faults(Plan& plan, Rng& rng) {
  const bool kills = rng.chance(0.5);
  const bool stops = rng.chance(0.4);
  const bool network = rng.chance(0.4);
  const std::uint64_t count = rng.between(1, 8);
  const Duration longest_stop =
      plan.config.cluster.heartbeat * (plan.config.cluster.dead_after + 6);
  for (std::uint64_t i = 0; i < count; ++i) {
    Fault fault;
    fault.at = rng.between(Duration::zero(), plan.horizon);
    fault.tasks = rng.between(0, 40);
    fault.target = any_node(plan, rng);
    fault.lasts = rng.between(milliseconds(1), seconds(3));
    const std::uint64_t which = rng.below(3);
    if (which == 0 && kills) {
      fault.kind = rng.pick(std::vector<FaultKind>{
          FaultKind::Kill, FaultKind::Kill, FaultKind::Kill, FaultKind::Exit, FaultKind::Drain});
      fault.limit = milliseconds(rng.below(2) * rng.below(500));
      if (plan.gateways > 1 && rng.chance(0.15)) {
        fault.target = gateway_name(rng.below(plan.gateways));
        fault.kind = FaultKind::Kill;
      }
    } else if (which == 1 && stops) {
      fault.kind = FaultKind::Stop;
      fault.lasts = rng.between(milliseconds(1), longest_stop);
    } else if (which == 2 && network) {
      fault.kind = rng.pick(
          std::vector<FaultKind>{FaultKind::CutControl, FaultKind::CutData, FaultKind::Partition});
      fault.other = rng.chance(0.4) ? gateway_name(rng.below(plan.gateways)) : any_node(plan, rng);
      fault.lasts = rng.between(milliseconds(1), longest_stop);
    } else {
      continue;
    }
    plan.faults.push_back(fault);
  }
}

void set_weather(Plan& plan, Rng& rng) {
  if (rng.chance(0.5)) {
    plan.control.slow = rng.pick(std::vector<double>{0.01, 0.05, 0.3});
    plan.control.slow_most = milliseconds(rng.between(1, 60));
  }
  if (rng.chance(0.6)) {
    plan.data.slow = rng.pick(std::vector<double>{0.0, 0.05, 0.4});
    plan.data.slow_most = milliseconds(rng.between(1, 400));
    plan.data.duplicate = rng.pick(std::vector<double>{0.0, 0.0, 0.05});
  }
  if (rng.chance(0.3)) {
    plan.data.drop = rng.pick(std::vector<double>{0.0, 0.002, 0.02});
    plan.data.late = rng.pick(std::vector<double>{0.0, 0.005, 0.05});
    plan.data.late_most = rng.pick(std::vector<Duration>{seconds(2), seconds(20)});
    plan.data.partial = rng.pick(std::vector<double>{0.0, 0.002, 0.02});
    plan.data.hang = rng.pick(std::vector<double>{0.0, 0.0, 0.01});
    plan.data.corrupt = rng.pick(std::vector<double>{0.0, 0.01});
  }
}

// Every fourth cluster guesses, and its model repeats itself, so that guesses are right. Draws
// nothing: the rest of a plan is what it was.
void set_speculation(Plan& plan) {
  if (plan.seed % 4 != 0) {
    return;
  }
  plan.config.decode.speculation.mode = "ngram";
  plan.config.decode.speculation.max_tokens = 1 + static_cast<std::uint32_t>(plan.seed / 4 % 9);
  plan.config.decode.speculation.min_match = 1 + static_cast<std::uint32_t>(plan.seed / 36 % 3);
  plan.model.habits = 4 + static_cast<std::uint32_t>(plan.seed / 4 % 7);
}

}  // namespace

bool Plan::is_calm() const {
  return faults.empty() && data.drop == 0 && data.late == 0 && data.partial == 0 &&
         data.hang == 0 && data.corrupt == 0;
}

std::string gateway_name(std::size_t index) {
  return fmt::format("gateway-{}", index);
}

std::string gateway_address(std::size_t index) {
  return fmt::format("10.0.0.{}:7000", index + 1);
}

GenerateRequest plan_request(std::uint64_t id,
                             std::size_t prompt,
                             std::uint32_t max_tokens,
                             std::uint64_t words) {
  GenerateRequest request;
  request.id = RequestId{id};
  request.model = "scripted";
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  Rng rng(words, 9);
  request.prompt = text(rng, prompt);
  return request;
}

Plan quiet_plan(std::uint64_t seed, std::size_t prefills, std::size_t decodes) {
  Plan plan;
  plan.seed = seed;
  plan.horizon = seconds(2);
  plan.model.layers = 2;
  plan.config.cluster.token = "secret";
  plan.config.cluster.gateways = {gateway_address(0)};
  plan.config.kv.block_tokens = plan.model.block_tokens;
  plan.tracker.queue_timeout = seconds(30);
  plan.tracker.request_timeout = seconds(60);
  for (std::size_t i = 0; i < prefills; ++i) {
    plan.nodes.push_back({.name = fmt::format("p{}", i), .role = "prefill"});
  }
  for (std::size_t i = 0; i < decodes; ++i) {
    plan.nodes.push_back({.name = fmt::format("d{}", i), .role = "decode"});
  }
  return plan;
}

Plan make_plan(std::uint64_t seed) {
  Rng rng(seed, 3);
  Plan plan = quiet_plan(seed, rng.between(1, 3), rng.between(1, 3));
  plan.gateways = rng.chance(0.25) ? 2 : 1;
  if (plan.gateways == 2) {
    plan.config.cluster.gateways.push_back(gateway_address(1));
  }
  plan.horizon = rng.between(milliseconds(500), seconds(8));
  set_config(plan, rng);
  add_clients(plan, rng);
  set_blocks(plan, rng);
  for (NodePlan& node : plan.nodes) {
    node.keeps_port = rng.chance(0.7);
  }
  if (!rng.chance(0.12)) {
    set_weather(plan, rng);
    if (rng.chance(0.75)) {
      add_faults(plan, rng);
    }
    plan.digest = plan.data.corrupt > 0 || rng.chance(0.5) ? transfer::DigestMode::All
                                                           : transfer::DigestMode::Off;
    plan.config.transfer.pull = rng.chance(0.8);
    plan.waits_first = !rng.chance(0.1);
  }
  set_speculation(plan);
  return plan;
}

}  // namespace baton::sim
