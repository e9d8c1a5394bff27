#include "cli/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/queueing.h"

namespace baton::cli {
namespace {

constexpr double kMostBusy = 0.85;  // a queue above it waits too long to be planned for
constexpr double kQuantile = 0.9;
constexpr double kQuantileSigma = 1.2816;  // of the normal distribution

// What nine of ten arrivals wait at most, each served in `service` seconds.
double wait(std::uint32_t servers, double rate, double service) {
  return wait_quantile({.servers = servers, .rate = rate, .service_s = service}, kQuantile);
}

class Arithmetic {
 public:
  Arithmetic(const PlanModel& model, const PlanNode& node, const PlanWorkload& load)
      : model_(model), node_(node), load_(load) {}

  double kv_bytes_a_token() const {
    return static_cast<double>(model_.layout.block_bytes_all_layers()) / model_.layout.block_tokens;
  }

  double prefill_seconds() const {
    const double input = load_.input_tokens;
    const double fresh = std::max(1.0, input * (1 - load_.cached_share));
    const double seen = input - (fresh - 1) / 2;  // tokens a fresh one looks at, mean
    const double rows = fresh * static_cast<double>(model_.row_products);
    const double attention =
        2 * fresh * seen * static_cast<double>(model_.attention_width) * model_.layout.layers;
    const double products = rows + attention + static_cast<double>(model_.head_products);
    return 2 * products / (node_.ops_per_s * node_.prefill_share);
  }

  // Of a decode step with `batch` sequences at the middle of their answers.
  double step_seconds(double batch) const {
    const double context = load_.input_tokens + load_.output_tokens / 2.0;
    const double bytes =
        static_cast<double>(model_.weight_bytes) + batch * context * kv_bytes_a_token();
    const double products = batch * static_cast<double>(model_.row_products + model_.head_products);
    return std::max(bytes / (node_.read_bytes_per_s * node_.decode_share),
                    2 * products / (node_.ops_per_s * node_.prefill_share));
  }

  // Sequences one of `nodes` holds in the long run when a step takes `stretch` of its time; empty:
  // more come than leave.
  std::optional<double> batch_of(std::uint32_t nodes, double stretch = 1) const {
    const double tokens_per_s = load_.requests_per_s * load_.output_tokens / nodes;
    double low = 0;
    double high = 1;
    const auto grows = [&](double batch) {
      return tokens_per_s * step_seconds(batch) * stretch > batch;
    };
    while (grows(high)) {
      high *= 2;
      if (high > 1e6) {
        return std::nullopt;
      }
    }
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (grows(middle) ? low : high) = middle;
    }
    return high;
  }

  static double high_batch(double mean) {
    return std::max(1.0, mean + kQuantileSigma * std::sqrt(mean));
  }

  std::uint32_t blocks_for(double batch) const {
    const std::uint32_t one =
        model_.layout.blocks_for(std::size_t{load_.input_tokens} + load_.output_tokens);
    return static_cast<std::uint32_t>(std::min(4e9, std::ceil(batch) * one));
  }
  std::uint32_t blocks_there() const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(
        ~std::uint32_t{0}, node_.arena_bytes / model_.layout.block_bytes_all_layers()));
  }

  double kv_bytes() const { return load_.input_tokens * kv_bytes_a_token(); }
  // Layers leave while the next are computed; the last one's bytes come behind them.
  double transfer_tail() const {
    const double last_layer = kv_bytes() / model_.layout.layers;
    if (node_.link_bytes_per_s <= 0) {
      return prefill_seconds() / model_.layout.layers;
    }
    const double late = kv_bytes() / node_.link_bytes_per_s - prefill_seconds();
    return std::max(late, 0.0) + last_layer / node_.link_bytes_per_s;
  }

  double ttft(std::uint32_t prefill_nodes) const {
    return wait(prefill_nodes, load_.requests_per_s, prefill_seconds()) + prefill_seconds();
  }
  double busy(std::uint32_t prefill_nodes) const {
    return load_.requests_per_s * prefill_seconds() / prefill_nodes;
  }

  bool decode_fits(std::uint32_t nodes) const {
    const auto batch = batch_of(nodes);
    return batch && step_seconds(high_batch(*batch)) <= load_.itl_s &&
           blocks_for(high_batch(*batch)) <= blocks_there();
  }

  // One pool: every step carries as much of a prompt as the ITL target leaves time for.
  bool colocated_fits(std::uint32_t nodes) const {
    const double prompt_share = busy(nodes);
    if (prompt_share >= kMostBusy) {
      return false;
    }
    const auto batch = batch_of(nodes, 1 / (1 - prompt_share));
    if (!batch || blocks_for(high_batch(*batch)) > blocks_there()) {
      return false;
    }
    const double step = step_seconds(high_batch(*batch));
    if (step >= load_.itl_s) {
      return false;
    }
    const double prompt_part = (load_.itl_s - step) / load_.itl_s;  // of the time of a full step
    const double service = prefill_seconds() / prompt_part;
    return load_.requests_per_s * service / nodes < kMostBusy &&
           wait(nodes, load_.requests_per_s, service) + service <= load_.ttft_s;
  }

 private:
  const PlanModel& model_;
  const PlanNode& node_;
  const PlanWorkload& load_;
};

// The smallest count that fits; more never fit worse.
template <typename Fits>
std::optional<std::uint32_t> fewest(Fits fits) {
  if (!fits(kMostNodes)) {
    return std::nullopt;
  }
  std::uint32_t low = 0;
  std::uint32_t high = kMostNodes;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

Status check(const PlanModel& model, const PlanNode& node, const PlanWorkload& load) {
  const auto positive = [](const char* name, double value) -> Status {
    if (!std::isfinite(value) || value <= 0) {
      return fail(ErrorCode::InvalidArgument,
                  fmt::format("{} must be above 0, got {}", name, value));
    }
    return {};
  };
  BATON_TRY(validate(model.layout));
  BATON_TRY(positive("the size of the weights", static_cast<double>(model.weight_bytes)));
  BATON_TRY(positive("the node's products", node.ops_per_s));
  BATON_TRY(positive("the node's memory rate", node.read_bytes_per_s));
  BATON_TRY(positive("the share of products that prefill reaches", node.prefill_share));
  BATON_TRY(positive("the share of memory that decode reaches", node.decode_share));
  BATON_TRY(positive("input tokens", load.input_tokens));
  BATON_TRY(positive("output tokens", load.output_tokens));
  BATON_TRY(positive("requests a second", load.requests_per_s));
  BATON_TRY(positive("the TTFT target", load.ttft_s));
  BATON_TRY(positive("the ITL target", load.itl_s));
  if (!(load.cached_share >= 0 && load.cached_share < 1)) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format("the cached share must be from 0 to below 1, got {}", load.cached_share));
  }
  return {};
}

// How many times the rate these nodes bear, to a thousandth.
double headroom(const PlanModel& model, const PlanNode& node, PlanWorkload load, const Plan& plan) {
  const double rate = load.requests_per_s;
  double low = 1;
  double high = 2;
  const auto bears = [&](double factor) {
    load.requests_per_s = rate * factor;
    const Arithmetic math(model, node, load);
    return math.busy(plan.prefill_nodes) < kMostBusy &&
           math.ttft(plan.prefill_nodes) + math.transfer_tail() <= load.ttft_s &&
           math.decode_fits(plan.decode_nodes);
  };
  while (bears(high) && high < 1024) {
    low = high;
    high *= 2;
  }
  while (high - low > 0.001) {
    const double middle = (low + high) / 2;
    (bears(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

Result<Plan> make_plan(const PlanModel& model, const PlanNode& node, const PlanWorkload& load) {
  BATON_TRY(check(model, node, load));
  const Arithmetic math(model, node, load);
  const double tail = math.transfer_tail();
  if (math.prefill_seconds() + tail > load.ttft_s) {
    return fail(ErrorCode::NotFound,
                fmt::format("a prompt of {} tokens takes {:.2f} s alone on such a node, transfer "
                            "included: above the TTFT target of {:.2f} s; take faster nodes, a "
                            "faster link or another target",
                            load.input_tokens,
                            math.prefill_seconds() + tail,
                            load.ttft_s));
  }
  if (math.step_seconds(1) > load.itl_s) {
    return fail(ErrorCode::NotFound,
                fmt::format("a step for one sequence takes {:.1f} ms on such a node: above the ITL "
                            "target of {:.1f} ms; take faster memory, smaller weights or another "
                            "target",
                            math.step_seconds(1) * 1e3,
                            load.itl_s * 1e3));
  }
  if (math.blocks_for(1) > math.blocks_there()) {
    return fail(ErrorCode::NotFound,
                fmt::format("one request takes {} KV blocks and the arena holds {}; raise the "
                            "arena or shorten the requests",
                            math.blocks_for(1),
                            math.blocks_there()));
  }
  const auto prefill = fewest([&](std::uint32_t n) {
    return math.busy(n) < kMostBusy && math.ttft(n) + tail <= load.ttft_s;
  });
  const auto decode = fewest([&](std::uint32_t n) { return math.decode_fits(n); });
  if (!prefill || !decode) {
    return fail(ErrorCode::NotFound,
                fmt::format("more than {} {} nodes would be needed for {} requests a second",
                            kMostNodes,
                            prefill ? "decode" : "prefill",
                            load.requests_per_s));
  }
  Plan plan;
  plan.prefill_nodes = *prefill;
  plan.decode_nodes = *decode;
  plan.prefill_s = math.prefill_seconds();
  plan.transfer_tail_s = tail;
  plan.ttft_s = math.ttft(*prefill) + tail;
  plan.prefill_busy = math.busy(*prefill);
  plan.decode_batch = *math.batch_of(*decode);
  plan.decode_batch_high = Arithmetic::high_batch(plan.decode_batch);
  plan.itl_s = math.step_seconds(plan.decode_batch_high);
  plan.blocks_needed = math.blocks_for(plan.decode_batch_high);
  plan.blocks_there = math.blocks_there();
  plan.kv_bytes = static_cast<std::uint64_t>(math.kv_bytes());
  plan.link_needed = math.kv_bytes() / math.prefill_seconds();
  plan.rate_headroom = headroom(model, node, load, plan);
  plan.colocated_nodes = fewest([&](std::uint32_t n) { return math.colocated_fits(n); });
  return plan;
}

}  // namespace baton::cli
