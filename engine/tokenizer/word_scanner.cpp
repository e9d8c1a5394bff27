#include "engine/tokenizer/word_scanner.h"

#include "engine/tokenizer/text_walk.h"

namespace baton::engine {
namespace {

using Ends = std::vector<std::uint32_t>;

template <std::size_t (*kNext)(const TextWalk& text, std::size_t at)>
void cut_words(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  const TextWalk walk(classes, text);
  while (at < text.size()) {
    at = kNext(walk, at);
    ends.push_back(static_cast<std::uint32_t>(at));
  }
}

constexpr CharClass kWordOrSpace = kSpace | kLetter | kNumber;

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// kDigits: as if each \p{N} had been cut out before.
template <bool kDigits>
std::size_t next_gpt2(const TextWalk& text, std::size_t at) {
  if (const std::size_t size = text.contraction(at, false)) {
    return at + size;
  }
  std::size_t start = text.has(at, ' ') && at + 1 < text.size() ? at + 1 : at;
  std::size_t size = 0;
  CharClass first = text.peek(start, size);
  if (kDigits && first == kNumber) {
    return start + (start == at ? size : 0);  // a space before a number ends its piece
  }
  if ((first & kLetter) != 0) {
    return text.run(start + size, kLetter);
  }
  if (first == kNumber) {
    return text.run(start + size, kNumber);
  }
  if (first != kSpace) {
    return text.run<false>(start + size, kWordOrSpace);
  }
  if (kDigits) {
    const std::size_t end = text.run(at, kSpace);
    if (end < text.size() && text.peek(end, size) == kNumber) {
      return end;
    }
  }
  return text.spaces(at);
}

struct Llama3Style {
  std::size_t numbers = 3;        // digits of a number
  CharClass word = kLetter;       // what words are made of
  bool newlines_of_signs = true;  // signs take the newlines after them
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
template <Llama3Style kStyle>
std::size_t next_llama3(const TextWalk& text, std::size_t at) {
  if (const std::size_t size = text.contraction(at, true)) {
    return at + size;
  }
  std::size_t size = 0;
  const CharClass first = text.peek(at, size);
  if (first == kNumber) {
    return text.run(at, kNumber, kStyle.numbers);
  }
  if ((first & kLetter) == 0 && !text.has(at, '\n') && !text.has(at, '\r')) {
    const std::size_t end = text.run(at + size, kStyle.word);
    if (end > at + size) {
      return end;  // a sign, then a word
    }
  }
  if ((first & kStyle.word) != 0) {
    return text.run(at, kStyle.word);
  }
  const std::size_t sign = text.has(at, ' ') ? at + 1 : at;
  const std::size_t end = text.run<false>(sign, kWordOrSpace | kStyle.word);
  if (end > sign) {
    return kStyle.newlines_of_signs ? text.newlines(end) : end;
  }
  return text.spaces_by_line(at);
}

constexpr CharClass kUpperLike = kUpper | kOtherLetter | kMark;  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
constexpr CharClass kLowerLike = kLower | kOtherLetter | kMark;  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]

// End of kUpperLike*kLowerLike+ at `at`, or `at` when that does not match there. `upper_end`
// becomes the end of kUpperLike*.
std::size_t end_of_lower(const TextWalk& text, std::size_t at, std::size_t& upper_end) {
  std::size_t end = at;
  std::size_t both = at;  // after the last character that is of both sorts
  while (end < text.size()) {
    std::size_t size = 0;
    const CharClass c = text.peek(end, size);
    if ((c & kUpperLike) == 0) {
      break;
    }
    end += size;
    both = (c & kLowerLike) != 0 ? end : both;
  }
  upper_end = end;
  const std::size_t lower = text.run(end, kLowerLike);
  return lower > end ? lower : both;
}

struct CasedStyle {
  std::size_t numbers = 1;
  bool contractions = false;
};

// [^\r\n\p{L}\p{N}]?U*L+(?i:'s|…)?|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|…)?|\p{N}{1,3}|
//  ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ with U and L as above.
template <CasedStyle kStyle>
std::size_t next_cased(const TextWalk& text, std::size_t at) {
  const auto with_suffix = [&](std::size_t end) {
    return kStyle.contractions ? end + text.contraction(end, true) : end;
  };
  std::size_t size = 0;
  const CharClass first = text.peek(at, size);
  if (first == kNumber) {
    return text.run(at, kNumber, kStyle.numbers);
  }
  std::size_t upper_end = 0;
  if ((first & kLetter) != 0) {
    const std::size_t end = end_of_lower(text, at, upper_end);
    return with_suffix(end > at ? end : upper_end);
  }
  if (!text.has(at, '\n') && !text.has(at, '\r')) {
    const std::size_t word = at + size;
    if (const std::size_t end = end_of_lower(text, word, upper_end); end > word) {
      return with_suffix(end);
    }
    if (first == kMark) {
      std::size_t unused = 0;
      return with_suffix(end_of_lower(text, at, unused));
    }
    if (upper_end > word) {
      return with_suffix(upper_end);
    }
  }
  const std::size_t sign = text.has(at, ' ') ? at + 1 : at;
  const std::size_t end = text.run<false>(sign, kWordOrSpace);
  return end > sign ? text.newlines(end, true) : text.spaces_by_line(at);
}

bool is_ascii_letter(unsigned char c) {
  return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

bool is_ascii_sign(unsigned char c) {
  return c > 0x20 && c < 0x7F && !is_ascii_letter(c) && (c < '0' || c > '9');
}

// [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+ ; gives `at` where nothing matches.
std::size_t match_deepseek3(const TextWalk& text, std::size_t at) {
  constexpr CharClass kWord = kLetter | kMark;
  constexpr CharClass kSign = kPunctuation | kSymbol;
  if (is_ascii_sign(text.byte(at))) {
    std::size_t end = at + 1;
    while (end < text.size() && is_ascii_letter(text.byte(end))) {
      ++end;
    }
    if (end > at + 1) {
      return end;
    }
  }
  std::size_t size = 0;
  const CharClass first = text.peek(at, size);
  if ((first & (kLetter | kSign)) == 0 && !text.has(at, '\n') && !text.has(at, '\r')) {
    const std::size_t end = text.run(at + size, kWord);
    if (end > at + size) {
      return end;
    }
  }
  if ((first & kWord) != 0) {
    return text.run(at, kWord);
  }
  const std::size_t sign = text.has(at, ' ') ? at + 1 : at;
  if (const std::size_t end = text.run(sign, kSign); end > sign) {
    return text.newlines(end);
  }
  return first == kSpace ? text.spaces_by_line(at) : at;
}

}  // namespace

void cut_gpt2(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  cut_words<next_gpt2<false>>(classes, text, at, ends);
}

void cut_gpt2_digits(const CharClasses& classes,
                     std::string_view text,
                     std::size_t at,
                     Ends& ends) {
  cut_words<next_gpt2<true>>(classes, text, at, ends);
}

void cut_llama3(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  cut_words<next_llama3<Llama3Style{}>>(classes, text, at, ends);
}

void cut_qwen2(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  cut_words<next_llama3<Llama3Style{.numbers = 1}>>(classes, text, at, ends);
}

void cut_qwen35(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  cut_words<next_llama3<Llama3Style{.numbers = 1, .word = kLetter | kMark}>>(
      classes, text, at, ends);
}

void cut_seed_coder(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  cut_words<next_llama3<Llama3Style{.numbers = 1, .newlines_of_signs = false}>>(
      classes, text, at, ends);
}

void cut_tekken(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  cut_words<next_cased<CasedStyle{}>>(classes, text, at, ends);
}

void cut_gpt4o(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  cut_words<next_cased<CasedStyle{.numbers = 3, .contractions = true}>>(classes, text, at, ends);
}

void cut_deepseek3(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  const TextWalk walk(classes, text);
  isolate(walk, at, ends, [&walk](std::size_t place) { return match_deepseek3(walk, place); });
}

}  // namespace baton::engine
