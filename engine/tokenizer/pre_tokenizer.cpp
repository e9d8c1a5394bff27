#include "engine/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <limits>
#include <string>

#include "engine/tokenizer/utf8.h"

namespace baton::engine {
namespace {

using Pass = PreTokenizer::Pass;

struct Family {
  std::string_view names;  // separated by spaces
  std::vector<Pass> passes;
  bool ignore_merges = false;
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"smollm starcoder refact command-r codeshell exaone minerva-7b",
       {Pass::OneDigit, Pass::Gpt2}},
      {"gpt-2 gpt2 mpt olmo jais phi-2 exaone4 modern-bert trillion", {Pass::Gpt2}},
      {"llama-bpe llama3 llama-v3 falcon3 pixtral lfm2 midm-2.0 glm4", {Pass::Llama3}, true},
      {"dbrx smaug-bpe chatglm-bpe", {Pass::Llama3}},
      {"qwen2 deepseek-r1-qwen stablelm2 hunyuan megrez", {Pass::Qwen2}},
      {"qwen35", {Pass::Qwen35}},
      {"default", {Pass::PunctuationRuns, Pass::Gpt2, Pass::NumberRuns, Pass::ThreeAsciiDigits}},
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

// Size of "'s", "'re" and the like at `at`, or 0.
std::size_t contraction(std::string_view text, std::size_t at, bool any_case) {
  const auto letter = [&](std::size_t i) -> char {
    if (at + i >= text.size()) {
      return '\0';
    }
    const char c = text[at + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    case '\xC5':  // U+017F, the long s, is an "s" to expressions that ignore case
      return any_case && at + 2 < text.size() && text[at + 2] == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

bool is_newline(char c) {
  return c == '\r' || c == '\n';
}

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

}  // namespace

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  const std::string_view wanted = name.empty() ? "default" : name;
  std::string known;
  for (const Family& family : families()) {
    if (contains_word(family.names, wanted)) {
      PreTokenizer made;
      made.passes_ = family.passes;
      made.ignore_merges_ = family.ignore_merges;
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
  ends.push_back(static_cast<std::uint32_t>(text.size()));
  std::vector<std::uint32_t> pieces;
  for (const Pass pass : passes_) {
    pieces.swap(ends);
    ends.clear();
    std::size_t at = 0;
    for (const std::uint32_t end : pieces) {
      const std::string_view piece = text.substr(0, end);
      while (at < end) {
        at = next(pass, piece, at);
        ends.push_back(static_cast<std::uint32_t>(at));
      }
    }
  }
}

CharClass PreTokenizer::peek(std::string_view text, std::size_t at, std::size_t& size) const {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) {
    size = 1;
    return classes_.of(byte);
  }
  const Utf8Char c = decode_utf8(text, at);
  size = c.size;
  return classes_.of(c.code);
}

template <class Accept>
std::size_t PreTokenizer::run(std::string_view text,
                              std::size_t at,
                              std::size_t limit,
                              Accept accept) const {
  while (at < text.size() && limit > 0) {
    std::size_t size = 0;
    if (!accept(peek(text, at, size))) {
      break;
    }
    at += size;
    --limit;
  }
  return at;
}

// \s+(?!\S)|\s+ : a run of spaces leaves its last one to the word that follows.
std::size_t PreTokenizer::end_of_spaces(std::string_view text, std::size_t at) const {
  std::size_t last = at;
  std::size_t end = at;
  while (end < text.size()) {
    std::size_t size = 0;
    if (peek(text, end, size) != CharClass::Space) {
      break;
    }
    last = end;
    end += size;
  }
  return end == text.size() || last == at ? end : last;
}

std::size_t PreTokenizer::next(Pass pass, std::string_view text, std::size_t at) const {
  std::size_t size = 0;
  switch (pass) {
    case Pass::Gpt2:
      return next_gpt2(text, at);
    case Pass::Llama3:
    case Pass::Qwen2:
    case Pass::Qwen35:
      return next_llama3(text, at, pass);
    case Pass::OneDigit:
      if (peek(text, at, size) == CharClass::Number) {
        return at + size;
      }
      return run(text, at, kNoLimit, [](CharClass c) { return c != CharClass::Number; });
    case Pass::NumberRuns: {
      const bool number = peek(text, at, size) == CharClass::Number;
      return run(
          text, at, kNoLimit, [number](CharClass c) { return (c == CharClass::Number) == number; });
    }
    case Pass::ThreeAsciiDigits: {
      const auto three_at = [&](std::size_t i) {
        return i + 3 <= text.size() && text[i] >= '0' && text[i] <= '9' && text[i + 1] >= '0' &&
               text[i + 1] <= '9' && text[i + 2] >= '0' && text[i + 2] <= '9';
      };
      if (three_at(at)) {
        return at + 3;
      }
      do {
        ++at;
      } while (at < text.size() && !three_at(at));
      return at;
    }
    case Pass::PunctuationRuns: {
      const auto wanted = [&](std::size_t i) {
        return peek(text, i, size) == CharClass::Punctuation ||
               std::string_view("$+<=>^~|").find(text[i]) != std::string_view::npos;
      };
      const bool first = wanted(at);
      do {
        at += size;
      } while (at < text.size() && wanted(at) == first);
      return at;
    }
  }
  return text.size();
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t PreTokenizer::next_gpt2(std::string_view text, std::size_t at) const {
  if (text[at] == '\'') {
    if (const std::size_t size = contraction(text, at, false)) {
      return at + size;
    }
  }
  const std::size_t start = text[at] == ' ' && at + 1 < text.size() ? at + 1 : at;
  std::size_t size = 0;
  const CharClass first = peek(text, start, size);
  switch (first) {
    case CharClass::Space:
      return end_of_spaces(text, at);
    case CharClass::Letter:
    case CharClass::Number:
      return run(text, start + size, kNoLimit, [first](CharClass c) { return c == first; });
    default:
      return run(text, start + size, kNoLimit, [](CharClass c) {
        return c != CharClass::Space && c != CharClass::Letter && c != CharClass::Number;
      });
  }
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+ ; Qwen2 has \p{N}, Qwen35 also counts \p{M} to the letters.
std::size_t PreTokenizer::next_llama3(std::string_view text, std::size_t at, Pass pass) const {
  const auto is_word = [pass](CharClass c) {
    return c == CharClass::Letter || (c == CharClass::Mark && pass == Pass::Qwen35);
  };
  if (text[at] == '\'') {
    if (const std::size_t size = contraction(text, at, true)) {
      return at + size;
    }
  }
  std::size_t size = 0;
  const CharClass first = peek(text, at, size);
  if (first == CharClass::Number) {
    return run(
        text, at, pass == Pass::Llama3 ? 3 : 1, [](CharClass c) { return c == CharClass::Number; });
  }
  if (first != CharClass::Letter && !is_newline(text[at])) {
    const std::size_t end = run(text, at + size, kNoLimit, is_word);
    if (end > at + size) {
      return end;  // a sign, then a word
    }
  }
  if (is_word(first)) {
    return run(text, at, kNoLimit, is_word);
  }
  const auto is_sign = [&](CharClass c) {
    return c != CharClass::Space && c != CharClass::Number && c != CharClass::Letter && !is_word(c);
  };
  const std::size_t sign = text[at] == ' ' ? at + 1 : at;
  std::size_t end = run(text, sign, kNoLimit, is_sign);
  if (end > sign) {
    while (end < text.size() && is_newline(text[end])) {
      ++end;
    }
    return end;
  }
  const std::size_t spaces =
      run(text, at, kNoLimit, [](CharClass c) { return c == CharClass::Space; });
  for (std::size_t i = spaces; i > at; --i) {
    if (is_newline(text[i - 1])) {
      return i;
    }
  }
  return end_of_spaces(text, at);
}

}  // namespace baton::engine
