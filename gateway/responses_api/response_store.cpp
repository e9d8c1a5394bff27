#include "gateway/responses_api/response_store.h"

#include <iterator>
#include <utility>

namespace baton::gateway {
namespace {

constexpr std::size_t kEntryBytes = 512;  // of an entry without its texts

std::size_t bytes_of(const std::string& id, const StoredResponse& response) {
  std::size_t bytes = kEntryBytes + 2 * id.size() + response.owner.size() + response.json.size();
  for (const engine::ChatMessage& message : response.messages) {
    bytes += sizeof(message) + message.role.size() + message.content.size() + message.name.size() +
             message.extra_json.size();
  }
  return bytes;
}

}  // namespace

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const std::size_t bytes = bytes_of(id, response);
  const std::lock_guard lock(mutex_);
  if (bytes > max_bytes_ || by_id_.contains(id)) {
    return;
  }
  while (bytes_ + bytes > max_bytes_) {
    remove(entries_.begin());
  }
  entries_.push_back({id, std::make_shared<const StoredResponse>(std::move(response)), bytes});
  by_id_[id] = std::prev(entries_.end());
  bytes_ += bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::get(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second->response;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    return false;
  }
  remove(found->second);
  return true;
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void ResponseStore::remove(std::list<Entry>::iterator at) {
  bytes_ -= at->bytes;
  by_id_.erase(at->id);
  entries_.erase(at);
}

}  // namespace baton::gateway
