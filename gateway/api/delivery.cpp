#include "gateway/api/delivery.h"

#include <algorithm>
#include <utility>

namespace baton::gateway {
namespace {

constexpr std::size_t kLikelyNext = 128;  // the next batch may well be as large

}  // namespace

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
  for (std::size_t thread = 0; thread < batches_.size(); ++thread) {
    Batch batch = std::exchange(batches_[thread], {});
    if (batch.empty()) {
      continue;
    }
    batches_[thread].reserve(std::min(batch.size(), kLikelyNext));
    HttpExchange& any = batch.front().answer->exchange();
    any.post([items = std::move(batch)]() mutable {
      for (auto& [answer, choice, item] : items) {
        answer->take(choice, std::move(item));
      }
    });
  }
}

}  // namespace baton::gateway
