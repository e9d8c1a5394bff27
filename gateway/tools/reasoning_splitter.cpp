#include "gateway/tools/reasoning_splitter.h"

#include <algorithm>
#include <utility>

#include "gateway/tools/text_scan.h"

namespace baton::gateway {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::string_view kClose = "</think>";

}  // namespace

void ReasoningSplitter::push(std::string_view text, std::string& reasoning, std::string& content) {
  if (state_ == State::Outside) {
    content += text;
    return;
  }
  held_ += text;
  if (state_ == State::Start && !at_start()) {
    return;
  }
  if (state_ == State::Inside && !inside(reasoning)) {
    return;
  }
  if (state_ == State::Gap) {
    held_.erase(0, leading_space(held_));
    if (held_.empty()) {
      return;
    }
    state_ = State::Outside;
  }
  content += std::exchange(held_, {});
}

bool ReasoningSplitter::at_start() {
  const std::size_t space = leading_space(held_);
  const std::string_view rest = std::string_view(held_).substr(space);
  if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) {
    return false;
  }
  if (rest.starts_with(kOpen)) {
    held_.erase(0, space + kOpen.size());
    state_ = State::Inside;
  } else {
    state_ = open_ ? State::Inside : State::Outside;
  }
  return true;
}

bool ReasoningSplitter::inside(std::string& reasoning) {
  if (!begun_) {
    held_.erase(0, leading_space(held_));
  }
  const std::size_t close = held_.find(kClose);
  const bool closed = close != std::string::npos;
  // White space at the end waits: it is dropped when the tag follows.
  const std::string_view seen =
      closed ? std::string_view(held_).substr(0, close)
             : std::string_view(held_).substr(0, held_.size() - partial_tail(held_, kClose));
  const std::size_t given = seen.size() - trailing_space(seen);
  reasoning += seen.substr(0, given);
  begun_ = begun_ || given > 0;
  held_.erase(0, closed ? close + kClose.size() : given);
  if (closed) {
    state_ = State::Gap;
  }
  return closed;
}

void ReasoningSplitter::flush(std::string& reasoning, std::string& content) {
  std::string& rest = is_inside() ? reasoning : content;
  rest += std::exchange(held_, {});
}

}  // namespace baton::gateway
