// CPU time that prompts cost on their way to the queue, by part, as metrics: reading the body, the
// chat template, the tokenizer. Template and tokenizer are counted by wrappers, so that whoever
// uses them needs to know nothing of it.
//
// Thread: any. Failure: as what is wrapped.
#pragma once

#include <atomic>
#include <memory>

#include "common/obs/metrics.h"
#include "engine/chat_template/chat_template.h"
#include "engine/tokenizer/tokenizer.h"

namespace baton::gateway {

// Copies count together.
struct PartCost {
  Counter seconds;  // of CPU
  std::shared_ptr<std::atomic<unsigned>> short_texts = std::make_shared<std::atomic<unsigned>>(0);
};

struct PromptCost {
  PromptCost() = default;  // counts nothing: for tests
  explicit PromptCost(Metrics& metrics);

  PartCost parse, render, tokenize;
};

// Adds the calling thread's CPU time from here to the end of the scope. Reading that clock is a
// system call: of a part's short texts the first of each 8 is timed, and counts for all.
class CpuTimer {
 public:
  // `bytes`: of the text that is worked on.
  CpuTimer(const PartCost& part, std::size_t bytes);
  CpuTimer(const CpuTimer&) = delete;
  CpuTimer& operator=(const CpuTimer&) = delete;
  ~CpuTimer();

 private:
  const Counter& seconds_;
  const double weight_;  // 0: not timed
  double begin_ = 0;
};

std::unique_ptr<const engine::Tokenizer> counted(std::unique_ptr<const engine::Tokenizer> tokenizer,
                                                 const PromptCost& cost);
std::unique_ptr<const engine::ChatTemplate> counted(
    std::unique_ptr<const engine::ChatTemplate> chat_template, const PromptCost& cost);

}  // namespace baton::gateway
