#include "node/drain.h"

#include <algorithm>
#include <utility>

namespace baton::node {
namespace {

constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24);  // what a frame may ask for

}  // namespace

Drain::Drain(const RoleDeps& deps, Handlers handlers)
    : executor_(deps.control),
      node_(deps.identity.name),
      log_(deps.log),
      handlers_(std::move(handlers)),
      change_role_(deps.change_role),
      gauge_(deps.metrics.gauge("baton_node_draining", "1 while the node takes nothing new")) {}

Error Drain::why() const {
  return {ErrorCode::Draining, "node " + node_ + " is draining"};
}

Status Drain::check_open() const {
  return is_draining_ ? std::unexpected(why()) : Status{};
}

void Drain::start(std::chrono::milliseconds limit, std::function<void()> drained) {
  const TimePoint ends_at = executor_.now() + limit;
  const bool is_first = !std::exchange(is_draining_, true);
  if (drained) {
    drained_.push_back(std::move(drained));
  }
  if (is_first || ends_at < ends_at_) {
    ends_at_ = ends_at;
    log_.info("draining: what is in work has {} ms to end", limit.count());
    if (limit.count() > 0) {
      limit_ = executor_.call_after(limit, [this] { hand_back(); });
    } else {
      limit_.cancel();
      hand_back();
    }
  }
  if (is_first) {
    gauge_.set(1);
    handlers_.announce();
  }
  check();
}

void Drain::answer(Channel& channel, const wire::Frame& frame) {
  const std::string& role = frame.drain().then_role();
  if (!role.empty() && (!change_role_ || (role != "prefill" && role != "decode"))) {
    log_.warn("asked to become a {} node, which this one cannot", role);
    if (frame.call() != 0) {
      channel.answer_error(frame,
                           {ErrorCode::InvalidArgument,
                            "node " + node_ + " has one role; baton-node runs those that change"});
    }
    return;
  }
  start(
      std::min(std::chrono::milliseconds(frame.drain().limit_ms()), kLongest),
      role.empty() ? std::function<void()>() : [this, role] { change_role_(role); });
  if (frame.call() != 0) {
    wire::Frame accepted;
    accepted.mutable_accepted();
    channel.answer(frame, std::move(accepted));
  }
}

void Drain::hand_back() {
  if (!handlers_.is_idle()) {
    handlers_.hand_back(why());
  }
  check();
}

void Drain::check() {
  if (!is_draining_ || !handlers_.is_idle()) {
    return;
  }
  limit_.cancel();
  for (const auto& drained : std::exchange(drained_, {})) {
    drained();
  }
}

void Drain::stop() {
  limit_.cancel();
  drained_.clear();
}

}  // namespace baton::node
