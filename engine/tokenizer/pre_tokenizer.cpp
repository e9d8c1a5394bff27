#include "engine/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include "engine/tokenizer/word_scanner.h"

namespace baton::engine {
namespace {

enum Habits : std::uint8_t { kNone = 0, kIgnoreMerges = 1, kNormalizes = 2 };

struct Family {
  std::string_view names;  // separated by spaces
  std::vector<PreTokenizer::Pass> passes;
  int habits = kNone;
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"gpt-2 gpt2 jais phi-2 exaone4 trillion mellum gigachat granite-docling", {cut_gpt2}},
      {"mpt olmo modern-bert", {cut_gpt2}, kNormalizes},
      {"smollm starcoder refact codeshell minerva-7b mellum2", {cut_gpt2_digits}},
      {"command-r exaone", {cut_gpt2_digits}, kNormalizes},
      {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 glm4 glm5",
       {cut_llama3},
       kIgnoreMerges},
      {"dbrx smaug-bpe chatglm-bpe", {cut_llama3}},
      {"qwen2 megrez", {cut_qwen2}, kNormalizes},
      {"deepseek-r1-qwen stablelm2 hunyuan solar-open grok-2 bailingmoe bailingmoe2 llada-moe",
       {cut_qwen2}},
      {"qwen35", {cut_qwen35}, kNormalizes},
      {"seed-coder", {cut_seed_coder}},
      {"tekken", {cut_tekken}, kIgnoreMerges},
      {"gpt-4o llama4 minimax-m2 kanana2", {cut_gpt4o}},
      {"deepseek-llm",
       {cut_newlines, cut_cased_words, cut_wide_signs, cut_end_space, cut_east_asian, cut_digits}},
      {"deepseek-coder",
       {cut_newlines, cut_letter_runs, cut_punctuation_runs, cut_east_asian, cut_digits}},
      {"deepseek-v3 hunyuan-dense joyai-llm", {cut_three_numbers, cut_kana_han, cut_deepseek3}},
      {"falcon", {cut_falcon_signs, cut_gpt2, cut_three_digits}},
      {"bloom gpt3-finnish", {cut_bloom}},
      {"poro-chat viking", {cut_bloom, cut_digits}},
      {"default", {cut_signs, cut_gpt2, cut_number_runs, cut_three_digits}},
  };
  return kFamilies;
}

bool contains_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    if (words.substr(0, end) == word) {
      return true;
    }
    words = end == std::string_view::npos ? std::string_view() : words.substr(end + 1);
  }
  return false;
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  const std::string_view wanted = name.empty() ? "default" : name;
  std::string known;
  for (const Family& family : families()) {
    if (contains_word(family.names, wanted)) {
      PreTokenizer made;
      made.passes_ = family.passes;
      made.ignore_merges_ = (family.habits & kIgnoreMerges) != 0;
      made.normalizes_ = (family.habits & kNormalizes) != 0;
      return made;
    }
    known += known.empty() ? "" : " ";
    known += family.names;
  }
  return fail(
      ErrorCode::InvalidModel,
      fmt::format("unknown pre-tokenizer '{}' (tokenizer.ggml.pre); known are: {}", name, known));
}

void PreTokenizer::split(std::string_view text, std::vector<std::uint32_t>& ends) const {
  ends.clear();
  if (text.empty()) {
    return;
  }
  passes_.front()(classes_, text, 0, ends);
  std::vector<std::uint32_t> pieces;
  for (std::size_t pass = 1; pass < passes_.size(); ++pass) {
    pieces.swap(ends);
    ends.clear();
    std::size_t at = 0;
    for (const std::uint32_t end : pieces) {
      passes_[pass](classes_, text.substr(0, end), at, ends);
      at = end;
    }
  }
}

}  // namespace baton::engine
