#include "gateway/admission.h"

namespace baton::gateway {

std::optional<AdmissionQueue::Ticket> AdmissionQueue::enter(const std::string& model,
                                                            RequestId id,
                                                            TimePoint expires) {
  if (size_ >= limit_) {
    return std::nullopt;
  }
  const Ticket ticket{next_number_++, expires};
  reenter(model, id, ticket);
  return ticket;
}

void AdmissionQueue::reenter(const std::string& model, RequestId id, const Ticket& ticket) {
  if (waiting_[model].emplace(ticket.number, Waiting{id, ticket.expires}).second) {
    ++size_;
  }
}

void AdmissionQueue::leave(const std::string& model, const Ticket& ticket) {
  const auto queue = waiting_.find(model);
  if (queue == waiting_.end() || queue->second.erase(ticket.number) == 0) {
    return;
  }
  --size_;
  if (queue->second.empty()) {
    waiting_.erase(queue);
  }
}

std::optional<RequestId> AdmissionQueue::head(const std::string& model, std::uint64_t after) const {
  const auto queue = waiting_.find(model);
  if (queue == waiting_.end()) {
    return std::nullopt;
  }
  const auto next = queue->second.upper_bound(after);
  return next == queue->second.end() ? std::nullopt : std::optional(next->second.id);
}

std::vector<std::string> AdmissionQueue::models() const {
  std::vector<std::string> names;
  for (const auto& [model, queue] : waiting_) {
    names.push_back(model);
  }
  return names;
}

std::vector<RequestId> AdmissionQueue::all(const std::string& model) const {
  std::vector<RequestId> ids;
  if (const auto queue = waiting_.find(model); queue != waiting_.end()) {
    for (const auto& [number, waiting] : queue->second) {
      ids.push_back(waiting.id);
    }
  }
  return ids;
}

std::vector<RequestId> AdmissionQueue::expired(TimePoint now) const {
  std::vector<RequestId> ids;
  for (const auto& [model, queue] : waiting_) {
    for (const auto& [number, waiting] : queue) {
      if (waiting.expires <= now) {
        ids.push_back(waiting.id);
      }
    }
  }
  return ids;
}

}  // namespace baton::gateway
