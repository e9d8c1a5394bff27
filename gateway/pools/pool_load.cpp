#include "gateway/pools/pool_load.h"

#include <algorithm>
#include <cmath>

#include "common/base/queueing.h"

namespace baton::gateway {
namespace {

constexpr double kAhead = 10;          // intervals: about what a change of role takes to pay
constexpr double kWorkOff = 12;        // intervals in which what waits is to be worked off
constexpr double kQuantile = 0.95;     // of requests that shall keep their target
constexpr double kSigmas = 1.645;      // the same for a normal distribution
constexpr double kLeastWait = 0.25;    // of a prompt's own time: waiting that is always planned for
constexpr double kEnoughAnswers = 16;  // a mean of fewer says little, nor does their rate
constexpr double kNothing = 0.5;       // of a request, or of a sequence that runs
constexpr double kKeepEnded = 1 - 1 / Trend::kLong;
constexpr double kKeepRunning = 1 - 1 / Trend::kShort;

}  // namespace

void PoolLoad::observe(const PoolObservation& seen) {
  const double seconds = std::max(seen.seconds, 1e-3);
  requests_.observe(seen.requests / seconds);
  tokens_.observe(seen.prompt_tokens / seconds);
  squares_.observe(seen.prompt_tokens_squared / seconds);
  answers_seen_ += seen.ended / seen.stands_for;
  lately_ = lately_ * kKeepEnded + seen.requests;
  waiting_ = seen.waiting;
  ended_ = ended_ * kKeepEnded + seen.ended;
  ended_prompt_ = ended_prompt_ * kKeepEnded + seen.ended_prompt_tokens;
  cached_ = cached_ * kKeepEnded + seen.cached_tokens;
  output_ = output_ * kKeepEnded + seen.output_tokens;

  double speed = 0;
  double num_speeds = 0;
  double running = 0;
  decode_nodes_ = 0;
  for (const PoolNode& node : seen.nodes) {
    if (!node.is_usable) {
      continue;
    }
    if (node.role == NodeRole::Prefill) {
      speed += node.prefill_tokens_per_s;
      num_speeds += node.prefill_tokens_per_s > 0 ? 1 : 0;
      continue;
    }
    ++decode_nodes_;
    running += node.running;
    max_batch_ = std::max(1U, node.max_batch);
    kv_tokens_ = static_cast<double>(node.kv_tokens);
    if (node.step_s > 0 && node.running > 0) {
      steps_.observe(1, node.running, node.step_s);
      last_step_s_ = node.step_s;
    }
  }
  if (num_speeds > 0) {
    node_tokens_per_s_ = speed / num_speeds;
  }
  running_ = kKeepRunning * running_ + (1 - kKeepRunning) * running;

  const double coming = requests_.at(kAhead);
  const double tokens = tokens_.at(kAhead);
  const double mean = coming > 0 ? tokens / coming : 0;
  const double square = coming > 0 ? squares_.at(kAhead) / coming : 0;
  const double fresh = ended_prompt_ > 0 ? 1 - std::min(cached_ / ended_prompt_, 0.99) : 1;
  const double off = kWorkOff * seconds;
  rate_ = coming + seen.waiting / off;
  const double all_tokens = tokens + seen.waiting_prompt_tokens / off;
  context_ = rate_ > 0 ? all_tokens / rate_ : 0;
  prompt_ = context_ * fresh;
  prompt_spread_ = mean > 0 ? std::clamp(square / (mean * mean) - 1, 0.0, 10.0) : 0;
  answer_ = ended_ > 0 ? output_ / ended_ : 0;
}

bool PoolLoad::is_known() const {
  return answers_seen_ >= kEnoughAnswers && requests_.count() >= Trend::kShort &&
         node_tokens_per_s_ > 0 && last_step_s_ > 0 && answer_ > 0 && prompt_ > 0;
}

bool PoolLoad::is_idle() const {
  return is_settled() && lately_ < kNothing && running_ < kNothing && waiting_ == 0;
}

double PoolLoad::prefill_service_s() const {
  return prompt_ / node_tokens_per_s_;
}

double PoolLoad::prefill_room(std::uint32_t nodes) const {
  if (nodes == 0) {
    return 0;
  }
  const double service = prefill_service_s();
  if (rate_ * service <= 0) {
    return kMostRoom;
  }
  // A long prompt's own time leaves less of the target to wait in.
  const double own = service * (1 + kSigmas * std::sqrt(prompt_spread_));
  const double wait = std::max(ttft_s_ - own, kLeastWait * service);
  double low = 0;
  double high = std::min(kMostRoom, nodes / (rate_ * service));
  for (int i = 0; i < 30; ++i) {
    const double middle = (low + high) / 2;
    const bool fits = wait_quantile({.servers = nodes,
                                     .rate = rate_ * middle,
                                     .service_s = service,
                                     .variation = prompt_spread_},
                                    kQuantile) <= wait;
    (fits ? low : high) = middle;
  }
  return low;
}

double PoolLoad::step_s(double batch) const {
  return steps_.is_known() ? steps_.a() + steps_.b() * batch : last_step_s_;
}

double PoolLoad::largest_batch() const {
  double batch = std::max(1.0, max_batch_);
  if (kv_tokens_ > 0) {
    batch = std::min(batch, kv_tokens_ / (context_ + answer_));
  }
  if (steps_.is_known() && steps_.b() > 0) {
    batch = std::min(batch, (itl_s_ - steps_.a()) / steps_.b());
  }
  return std::max(1.0, batch);
}

double PoolLoad::decode_room(std::uint32_t nodes) const {
  if (nodes == 0) {
    return 0;
  }
  const double tokens_per_s = rate_ * answer_;
  if (tokens_per_s <= 0) {
    return kMostRoom;
  }
  // The number of sequences at once spreads by its root, over all nodes together.
  const double places = nodes * largest_batch();
  const double root = (std::sqrt(kSigmas * kSigmas + 4 * places) - kSigmas) / 2;
  const double sequences = std::max(root * root, places / 2);
  const double by_rate = sequences / (step_s(sequences / nodes) * tokens_per_s);
  // Those that run tell of answers that are longer than those that ended.
  double by_running = kMostRoom;
  if (running_ > 0 && decode_nodes_ > 0) {
    const double slower = step_s(running_ / nodes) / step_s(running_ / decode_nodes_);
    by_running = sequences / (running_ * slower);
  }
  return std::min({by_rate, by_running, kMostRoom});
}

double PoolLoad::room(PoolSize size) const {
  return std::min(prefill_room(size.prefill), decode_room(size.decode));
}

double PoolLoad::mix() const {
  const double batch = largest_batch();
  const double prefill = prefill_service_s();
  const double decode = answer_ * step_s(batch) / batch;
  return std::log(prefill / decode);
}

}  // namespace baton::gateway
