#include "common/rpc/call_table.h"

#include <fmt/format.h>

#include <utility>

#include "common/wire/convert.h"

namespace baton {

std::uint64_t CallTable::open(std::chrono::milliseconds timeout, Channel::AnswerHandler handler) {
  const auto number = ++last_;
  auto& call = calls_[number];
  call.handler = std::move(handler);
  call.timer = executor_.call_after(timeout, [this, number, timeout] {
    if (const auto late = take(number)) {
      late(fail(ErrorCode::Timeout, fmt::format("no answer within {} ms", timeout.count())));
    }
  });
  return number;
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
}

void CallTable::forget_all() {
  // Dropping a handler may drop what owns this table's other handlers: empty it first.
  const auto dropped = std::exchange(calls_, {});
}

Channel::AnswerHandler CallTable::take(std::uint64_t number) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) {
    return {};
  }
  auto handler = std::move(found->second.handler);
  calls_.erase(found);
  return handler;
}

}  // namespace baton
