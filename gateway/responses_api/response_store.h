// Answers of /v1/responses that clients asked to keep, in memory of a fixed size: the oldest go
// first. Nothing is written to disk.
//
// Owner: the composition root. Thread: any; guarded by a mutex. Failure: one that is too large, or
// gone, is not found.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/chat_template/chat_template.h"

namespace baton::gateway {

struct StoredResponse {
  std::string owner;                          // name of the key that asked for it
  std::string json;                           // as it was answered
  std::vector<engine::ChatMessage> messages;  // of the conversation, the answer included
};

class ResponseStore {
 public:
  explicit ResponseStore(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  ResponseStore(const ResponseStore&) = delete;
  ResponseStore& operator=(const ResponseStore&) = delete;

  bool is_on() const { return max_bytes_ > 0; }
  void put(const std::string& id, StoredResponse response);
  // Null: there is none.
  std::shared_ptr<const StoredResponse> get(const std::string& id) const;
  // False: there was none.
  bool erase(const std::string& id);
  std::size_t bytes() const;

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    std::size_t bytes = 0;
  };
  void remove(std::list<Entry>::iterator at);

  const std::size_t max_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::list<Entry> entries_;  // oldest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
  std::size_t bytes_ = 0;
};

}  // namespace baton::gateway
