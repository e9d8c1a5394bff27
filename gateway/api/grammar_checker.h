// Says before a request is queued whether its grammar can be held to, so that the client hears a
// 400 and no node is asked. Remembers what was good.
//
// Owner: the composition root. Thread: any; checking takes milliseconds and belongs on the work
// pool. Failure: InvalidArgument, to be told with the field's name.
#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>

#include "common/base/error.h"
#include "common/types/request.h"

namespace baton::gateway {

class GrammarChecker {
 public:
  // `memory_bytes`: of grammars that are remembered.
  explicit GrammarChecker(std::size_t memory_bytes = std::size_t{4} << 20)
      : memory_bytes_(memory_bytes) {}

  Status check(const Grammar& grammar);

 private:
  const std::size_t memory_bytes_;
  std::mutex mutex_;  // guards what follows
  std::set<std::string> known_;
  std::size_t bytes_ = 0;
};

}  // namespace baton::gateway
