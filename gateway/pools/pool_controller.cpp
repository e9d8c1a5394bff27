#include "gateway/pools/pool_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/json/json_escape.h"

namespace baton::gateway {
namespace {

// Loading a model that is packed already takes seconds; without, minutes.
constexpr std::chrono::minutes kComesBack{5};

std::string_view name_of(NodeRole role) {
  return role == NodeRole::Prefill ? "prefill" : "decode";
}

std::string_view name_of(SplitBy by) {
  switch (by) {
    case SplitBy::Load:
      return "load";
    case SplitBy::Ratio:
      return "ratio";
    case SplitBy::Floor:
      return "floor";
  }
  return "";
}

std::size_t index(NodeRole role) {
  return static_cast<std::size_t>(role);
}

PoolOptions policy_options(const PoolControllerOptions& options) {
  const PoolsSection& pools = options.pools;
  PoolOptions out{.least = {pools.prefill.min, pools.decode.min},
                  .most = {pools.prefill.max, pools.decode.max},
                  .ratio = std::nullopt,
                  .ttft_s = options.ttft_s,
                  .itl_s = options.itl_s,
                  .cooldown = pools.cooldown};
  if (const auto ratio = parse_ratio(pools.ratio)) {
    out.ratio = PoolSize{ratio->first, ratio->second};
  }
  return out;
}

PoolNode describe(const Node& node) {
  return {
      .handle = node.handle,
      .role = node.role,
      .is_usable = node.health == PeerHealth::Alive && !node.is_draining(),
      .may_change = node.may_change_role,
      .prefill_tokens_per_s = node.load.prefill_tokens_per_s(),
      .step_s = node.load.decode_step_ms() / 1e3,
      .running = node.load.running(),
      .max_batch = node.load.max_batch(),
      .kv_tokens = std::uint64_t{node.load.blocks_total()} * node.model.layout().block_tokens()};
}

// Why nodes are given another role.
std::string reason(const std::string& model, PoolSize there, const PoolDecision& decision) {
  const std::string pools = fmt::format(
      "pools of '{}': {} prefill and {} decode nodes", model, there.prefill, there.decode);
  const PoolSize& split = decision.split;
  if (decision.by != SplitBy::Load) {
    return fmt::format(
        "{}, {} wants {} and {}", pools, name_of(decision.by), split.prefill, split.decode);
  }
  return fmt::format("{} carry {:.2f} times the load expected, {} and {} would carry {:.2f} times",
                     pools,
                     decision.room_now,
                     split.prefill,
                     split.decode,
                     decision.room_then);
}

}  // namespace

PoolController::PoolController(Executor& executor,
                               Membership& membership,
                               const Logger& log,
                               Metrics& metrics,
                               PoolControllerOptions options,
                               AskWaiting waiting)
    : executor_(executor),
      membership_(membership),
      log_(log),
      options_(std::move(options)),
      policy_options_(policy_options(options_)),
      waiting_(std::move(waiting)) {
  for (const NodeRole role : {NodeRole::Prefill, NodeRole::Decode}) {
    const Metrics::Labels labels{{"role", std::string(name_of(role))}};
    desired_[index(role)] = metrics.gauge("baton_pool_desired_replicas",
                                          "Nodes of the role that keep the targets, all models",
                                          labels);
    there_[index(role)] =
        metrics.gauge("baton_pool_nodes", "Nodes of the role that take requests", labels);
    changes_[index(role)] = metrics.counter(
        "baton_pool_role_changes_total", "Nodes that were given the role by this gateway", labels);
  }
}

void PoolController::start() {
  last_look_ = executor_.now();
  timer_ = executor_.call_after(options_.pools.interval, [this] { look(); });
}

void PoolController::change_options(PoolControllerOptions options) {
  options_ = std::move(options);
  policy_options_ = policy_options(options_);
  for (auto& [model, pools] : pools_) {
    pools.policy.change_options(policy_options_);
  }
}

PoolController::Pools& PoolController::pools_of(const std::string& model) {
  return pools_.try_emplace(model, policy_options_).first->second;
}

void PoolController::on_request(const std::string& model, std::size_t prompt_tokens) {
  PoolObservation& seen = pools_of(model).seen;
  const auto tokens = static_cast<double>(prompt_tokens);
  ++seen.requests;
  seen.prompt_tokens += tokens;
  seen.prompt_tokens_squared += tokens * tokens;
}

void PoolController::on_ended(const std::string& model,
                              std::uint32_t prompt_tokens,
                              std::uint32_t cached_tokens,
                              std::uint32_t output_tokens) {
  if (output_tokens == 0) {
    return;
  }
  PoolObservation& seen = pools_of(model).seen;
  ++seen.ended;
  seen.ended_prompt_tokens += prompt_tokens;
  seen.cached_tokens += cached_tokens;
  seen.output_tokens += output_tokens;
}

void PoolController::look() {
  timer_ = executor_.call_after(options_.pools.interval, [this] { look(); });
  for (const auto& [id, model] : membership_.models()) {
    pools_of(id).last_seen = executor_.now();
  }
  std::erase_if(pools_, [&](const auto& entry) {
    return executor_.now() - entry.second.last_seen >= kComesBack;
  });
  for (auto& [model, pools] : pools_) {
    settle(pools);
    pools.decision = pools.policy.decide(executor_.now(), observe(model, pools));
    pools.was_looked_at = true;
    carry_out(model, pools);
  }
  last_look_ = executor_.now();
  export_sizes();
}

// Those that have come back, or are not waited for any more.
void PoolController::settle(Pools& pools) {
  const std::vector<const Node*> nodes = membership_.nodes();
  std::erase_if(pools.changing, [&](const auto& entry) {
    const auto& [name, changing] = entry;
    const auto found = std::ranges::find(nodes, name, &Node::name);
    if (found != nodes.end() && (*found)->incarnation != changing.from) {
      log_.info("node '{}' is back as a {} node", name, name_of((*found)->role));
      return true;
    }
    if (executor_.now() < changing.until) {
      return false;
    }
    log_.warn(
        "node '{}' was to become a {} node and has not come back", name, name_of(changing.to));
    return true;
  });
}

PoolObservation PoolController::observe(const std::string& model, Pools& pools) {
  PoolObservation seen = std::exchange(pools.seen, {});
  seen.seconds = std::chrono::duration<double>(executor_.now() - last_look_).count();
  const WaitingPrompts waiting = waiting_(model);
  seen.waiting = waiting.requests;
  seen.waiting_prompt_tokens = static_cast<double>(waiting.tokens);
  const std::vector<const Node*> nodes = membership_.nodes();
  for (const Node* node : nodes) {
    if (node->model.id() == model && node->role == NodeRole::Decode) {
      pools.share.observe(node->handle, node->load.requests_taken(), node->sequences_taken);
    }
  }
  pools.share.end_interval();
  pools.share.scale(seen);
  pools.there = usable(model);
  for (const Node* node : nodes) {
    if (node->model.id() != model) {
      continue;
    }
    const PoolNode& known = seen.nodes.emplace_back(describe(*node));
    if (known.role == NodeRole::Prefill) {
      seen.waiting_prompt_tokens += node->load.queued_tokens();
    }
  }
  for (const auto& [name, changing] : pools.changing) {
    ++(changing.to == NodeRole::Prefill ? seen.to_prefill : seen.to_decode);
  }
  return seen;
}

PoolSize PoolController::usable(const std::string& model) const {
  PoolSize size;
  for (const Node* node : membership_.nodes()) {
    if (node->model.id() == model && describe(*node).is_usable) {
      ++(node->role == NodeRole::Prefill ? size.prefill : size.decode);
    }
  }
  return size;
}

void PoolController::carry_out(const std::string& model, Pools& pools) {
  const PoolDecision& decision = pools.decision;
  if (decision.change.empty() || options_.pools.change_roles == "off") {
    return;
  }
  const std::string why = reason(model, pools.there, decision);
  for (const NodeHandle handle : decision.change) {
    const Node* node = membership_.find(handle);
    if (node == nullptr) {
      continue;
    }
    if (options_.pools.change_roles == "dry_run") {
      log_.info("{}; node '{}' would become a {} node", why, node->name, name_of(decision.to));
      continue;
    }
    log_.info("{}; node '{}' becomes a {} node", why, node->name, name_of(decision.to));
    const NodeName name = node->name;
    pools.changing[name] = {
        decision.to, node->incarnation, executor_.now() + options_.pools.drain + kComesBack};
    membership_.drain(name, options_.pools.drain, std::string(name_of(decision.to)));
    changes_[index(decision.to)].add();
  }
}

void PoolController::export_sizes() {
  for (const NodeRole role : {NodeRole::Prefill, NodeRole::Decode}) {
    std::uint32_t desired = 0;
    std::uint32_t there = 0;
    for (const auto& [model, pools] : pools_) {
      desired += pools.decision.desired.of(role);
      there += pools.there.of(role);
    }
    desired_[index(role)].set(desired);
    there_[index(role)].set(there);
  }
}

std::string PoolController::to_json() const {
  std::string out = "[";
  for (const auto& [model, pools] : pools_) {
    if (!pools.was_looked_at) {
      continue;
    }
    // What was wanted of other nodes says nothing of these.
    const PoolSize there = usable(model);
    const bool is_current = there == pools.there;
    out += out.size() == 1 ? "{\"model\":" : ",{\"model\":";
    append_json_string(out, model);
    const PoolDecision& decision = pools.decision;
    fmt::format_to(
        std::back_inserter(out),
        ",\"change_roles\":\"{}\",\"changing\":{},\"split_by\":\"{}\",\"room\":{},\"share\":{:.3f}",
        options_.pools.change_roles,
        pools.changing.size(),
        name_of(decision.by),
        decision.has_room ? fmt::format("{:.3f}", decision.room_now) : "null",
        pools.share.get());
    for (const NodeRole role : {NodeRole::Prefill, NodeRole::Decode}) {
      fmt::format_to(std::back_inserter(out),
                     ",\"{}\":{{\"nodes\":{},\"wanted\":{},\"desired_replicas\":{}}}",
                     name_of(role),
                     there.of(role),
                     is_current ? decision.split.of(role) : there.of(role),
                     decision.desired.of(role));
    }
    out += "}";
  }
  return out + "]";
}

}  // namespace baton::gateway
