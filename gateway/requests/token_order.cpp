#include "gateway/requests/token_order.h"

#include <algorithm>

namespace baton::gateway {
namespace {

template <class T>
void erase_front(std::vector<T>& values, std::size_t count) {
  values.erase(values.begin(),
               values.begin() + static_cast<std::ptrdiff_t>(std::min(count, values.size())));
}

}  // namespace

Status TokenOrder::push(TokenEvent event, std::vector<TokenEvent>& ready) {
  if (finished_) {
    ++dropped_;
    return {};
  }
  if (event.index > next_) {
    if (waiting_.size() >= kMaxWaiting) {
      return fail(ErrorCode::ProtocolError, "too many token events arrived before an earlier one");
    }
    waiting_.emplace(event.index, std::move(event));
    return {};
  }
  give(std::move(event), ready);
  while (!finished_ && !waiting_.empty() && waiting_.begin()->first <= next_) {
    auto node = waiting_.extract(waiting_.begin());
    give(std::move(node.mapped()), ready);
  }
  if (finished_) {
    dropped_ += waiting_.size();
    waiting_.clear();
  }
  return {};
}

void TokenOrder::give(TokenEvent event, std::vector<TokenEvent>& ready) {
  const std::size_t old = next_ - event.index;
  if (event.tokens.size() < old) {
    // Its end lies behind tokens that are out; an end there contradicts them and cannot be ours.
    ++dropped_;
    return;
  }
  if (old > 0) {
    erase_front(event.tokens, old);
    erase_front(event.logprobs, old);
    erase_front(event.top_logprobs, old);
    event.index = next_;
  }
  finished_ = event.finish != FinishReason::None;
  if (event.tokens.empty() && !finished_) {
    ++dropped_;
    return;
  }
  next_ += static_cast<std::uint32_t>(event.tokens.size());
  ready.push_back(std::move(event));
}

void TokenOrder::restart() {
  waiting_.clear();
  finished_ = false;
}

}  // namespace baton::gateway
