#include "gateway/delivery.h"

#include <utility>

namespace baton::gateway {

void Delivery::put(std::shared_ptr<Answer> answer, std::uint32_t choice, Answer::Item item) {
  const std::uint32_t thread = answer->exchange().io_thread();
  if (batches_.size() <= thread) {
    batches_.resize(thread + 1);
  }
  batches_[thread].push_back({std::move(answer), choice, std::move(item)});
  if (!std::exchange(flush_posted_, true)) {
    executor_.post([this, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) {
        flush();
      }
    });
  }
}

void Delivery::flush() {
  flush_posted_ = false;
  for (Batch& batch : batches_) {
    if (batch.empty()) {
      continue;
    }
    HttpExchange& any = batch.front().answer->exchange();
    any.post([items = std::exchange(batch, {})]() mutable {
      for (auto& [answer, choice, item] : items) {
        answer->take(choice, std::move(item));
      }
    });
  }
}

}  // namespace baton::gateway
