// The one queue: requests of each model wait here, oldest first, until a pair can take them.
// Bounded over all models.
//
// Thread: the control strand. Failure: `enter` refuses when the queue is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/exec/executor.h"

namespace baton::gateway {

class AdmissionQueue {
 public:
  explicit AdmissionQueue(std::size_t limit) : limit_(limit) {}

  // A place in the order of arrival; a request that comes back keeps it.
  struct Ticket {
    std::uint64_t number = 0;
    TimePoint expires;  // leaves the queue then
  };

  // Nothing when the queue is full.
  std::optional<Ticket> enter(const std::string& model, RequestId id, TimePoint expires);
  // Back to its old place; always accepted, since it was counted before.
  void reenter(const std::string& model, RequestId id, const Ticket& ticket);
  void leave(const std::string& model, const Ticket& ticket);

  // The oldest request of a model, or of those behind ticket number `after`.
  std::optional<RequestId> head(const std::string& model, std::uint64_t after = 0) const;
  std::vector<std::string> models() const;
  std::vector<RequestId> all(const std::string& model) const;
  // Those whose time is over; they stay until they leave.
  std::vector<RequestId> expired(TimePoint now) const;
  std::size_t size() const { return size_; }
  std::size_t limit() const { return limit_; }

 private:
  struct Waiting {
    RequestId id{};
    TimePoint expires;
  };
  const std::size_t limit_;
  std::size_t size_ = 0;
  std::uint64_t next_number_ = 1;
  std::map<std::string, std::map<std::uint64_t, Waiting>> waiting_;  // model, number
};

}  // namespace baton::gateway
