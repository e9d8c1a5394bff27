// Carries tokens from the control strand to the I/O threads: all that one task of the strand gave
// goes to each thread in one hop, so that a step of a large batch costs few wake-ups.
//
// Owner: the composition root. Thread: the control strand. Failure: none.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/exec/executor.h"
#include "gateway/api/answer.h"

namespace baton::gateway {

class Delivery {
 public:
  explicit Delivery(Executor& executor) : executor_(executor) {}
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  void put(std::shared_ptr<Answer> answer, std::uint32_t choice, Answer::Item item);

 private:
  struct Entry {
    std::shared_ptr<Answer> answer;
    std::uint32_t choice = 0;
    Answer::Item item;
  };
  using Batch = std::vector<Entry>;
  void flush();

  Executor& executor_;
  std::vector<Batch> batches_;  // by I/O thread
  bool flush_posted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton::gateway
