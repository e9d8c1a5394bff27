#include "gateway/api/prompt_cost.h"

#include <time.h>

#include <utility>

namespace baton::gateway {
namespace {

constexpr std::size_t kShortText = 4096;
constexpr unsigned kShortTurns = 8;

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double weight_of(const PartCost& part, std::size_t bytes) {
  if (bytes > kShortText) {
    return 1;
  }
  return part.short_texts->fetch_add(1, std::memory_order_relaxed) % kShortTurns == 0 ? kShortTurns
                                                                                      : 0;
}

class CountedTokenizer final : public engine::Tokenizer {
 public:
  CountedTokenizer(std::unique_ptr<const engine::Tokenizer> inner, PartCost cost)
      : inner_(std::move(inner)), cost_(std::move(cost)) {}

  const engine::TokenizerSpec& spec() const override { return inner_->spec(); }
  std::size_t vocab_size() const override { return inner_->vocab_size(); }
  std::vector<TokenId> encode(std::string_view text,
                              bool special_allowed,
                              bool add_bos) const override {
    const CpuTimer timer(cost_, text.size());
    return inner_->encode(text, special_allowed, add_bos);
  }
  std::vector<TokenId> encode(std::span<const engine::PromptPiece> pieces,
                              bool add_bos) const override {
    std::size_t bytes = 0;
    for (const engine::PromptPiece& piece : pieces) {
      bytes += piece.text.size();
    }
    const CpuTimer timer(cost_, bytes);
    return inner_->encode(pieces, add_bos);
  }
  std::string_view token_bytes(TokenId id, bool with_special) const override {
    return inner_->token_bytes(id, with_special);
  }
  std::size_t least_tokens(std::size_t bytes) const override { return inner_->least_tokens(bytes); }
  std::span<const TokenId> stop_tokens() const override { return inner_->stop_tokens(); }

 private:
  const std::unique_ptr<const engine::Tokenizer> inner_;
  const PartCost cost_;
};

class CountedTemplate final : public engine::ChatTemplate {
 public:
  CountedTemplate(std::unique_ptr<const engine::ChatTemplate> inner, PartCost cost)
      : inner_(std::move(inner)), cost_(std::move(cost)) {}

  Result<std::vector<engine::PromptPiece>> render(engine::ChatTemplateInput input) const override {
    std::size_t bytes = 0;
    for (const engine::ChatMessage& message : input.messages) {
      bytes += message.content.size();
    }
    const CpuTimer timer(cost_, bytes);
    return inner_->render(std::move(input));
  }

 private:
  const std::unique_ptr<const engine::ChatTemplate> inner_;
  const PartCost cost_;
};

}  // namespace

PromptCost::PromptCost(Metrics& metrics) {
  const auto part = [&](const char* name) {
    return metrics.counter(
        "baton_prompt_cpu_seconds_total", "CPU time of prompts before the queue", {{"part", name}});
  };
  parse.seconds = part("parse");
  render.seconds = part("template");
  tokenize.seconds = part("tokenize");
}

CpuTimer::CpuTimer(const PartCost& part, std::size_t bytes)
    : seconds_(part.seconds), weight_(weight_of(part, bytes)) {
  if (weight_ > 0) {
    begin_ = thread_cpu_seconds();
  }
}
CpuTimer::~CpuTimer() {
  if (weight_ > 0) {
    seconds_.add(weight_ * (thread_cpu_seconds() - begin_));
  }
}

std::unique_ptr<const engine::Tokenizer> counted(std::unique_ptr<const engine::Tokenizer> tokenizer,
                                                 const PromptCost& cost) {
  return std::make_unique<CountedTokenizer>(std::move(tokenizer), cost.tokenize);
}

std::unique_ptr<const engine::ChatTemplate> counted(
    std::unique_ptr<const engine::ChatTemplate> chat_template, const PromptCost& cost) {
  return std::make_unique<CountedTemplate>(std::move(chat_template), cost.render);
}

}  // namespace baton::gateway
