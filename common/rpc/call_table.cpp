#include "common/rpc/call_table.h"

#include <fmt/format.h>

#include <utility>

#include "common/wire/convert.h"

namespace baton {

std::uint64_t CallTable::open(std::chrono::milliseconds timeout, Channel::AnswerHandler handler) {
  const auto number = ++last_;
  const TimePoint now = executor_.now();
  calls_[number] = std::move(handler);
  deadlines_.push({now + timeout, number, now});
  arm();
  return number;
}

void CallTable::arm() {
  while (!deadlines_.empty() && !calls_.contains(deadlines_.top().number)) {
    deadlines_.pop();
  }
  if (deadlines_.empty() || (timer_.is_pending() && armed_for_ <= deadlines_.top().at)) {
    return;
  }
  armed_for_ = deadlines_.top().at;
  timer_ = executor_.call_after(armed_for_ - executor_.now(), [this] { expire(); });
}

// One a turn: a handler may forget the others, or drop this table.
void CallTable::expire() {
  Channel::AnswerHandler late;
  std::chrono::milliseconds timeout{};
  if (!deadlines_.empty() && deadlines_.top().at <= executor_.now()) {
    const Deadline& due = deadlines_.top();
    timeout = std::chrono::duration_cast<std::chrono::milliseconds>(due.at - due.began);
    late = take(due.number);
  }
  arm();
  if (late) {
    late(fail(ErrorCode::Timeout, fmt::format("no answer within {} ms", timeout.count())));
  }
}

void CallTable::finish(wire::Frame frame) {
  if (const auto handler = take(frame.answers())) {
    if (frame.has_refusal()) {
      handler(std::unexpected(from_refusal(frame.refusal())));
    } else {
      handler(std::move(frame));
    }
  }
}

void CallTable::fail_one(std::uint64_t number, const Error& error) {
  if (const auto handler = take(number)) {
    handler(std::unexpected(error));
  }
}

void CallTable::fail_all(const Error& error) {
  // A handler may open a new call (it fails by itself) or forget the rest.
  while (!calls_.empty()) {
    if (const auto handler = take(calls_.begin()->first)) {
      handler(std::unexpected(error));
    }
  }
  deadlines_ = {};
  timer_.cancel();
}

void CallTable::forget_all() {
  // Dropping a handler may drop what owns this table's other handlers: empty it first.
  const auto dropped = std::exchange(calls_, {});
  deadlines_ = {};
  timer_.cancel();
}

Channel::AnswerHandler CallTable::take(std::uint64_t number) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) {
    return {};
  }
  auto handler = std::move(found->second);
  calls_.erase(found);
  return handler;
}

}  // namespace baton
