// The passes of one expression each.
#include <initializer_list>
#include <utility>

#include "engine/tokenizer/text_walk.h"
#include "engine/tokenizer/word_scanner.h"

namespace baton::engine {
namespace {

using Ends = std::vector<std::uint32_t>;

// End of one space, when `kSpaceBefore` and it is there, and a run of characters that `is_in`
// accepts by code and class; `at` when there are none.
template <bool kSpaceBefore, class IsIn>
std::size_t match_run(const TextWalk& text, std::size_t at, IsIn is_in) {
  const auto run = [&](std::size_t from) {
    while (from < text.size()) {
      std::size_t size = 0;
      const CharClass c = text.peek(from, size);
      if (!is_in(text, from, c)) {
        break;
      }
      from += size;
    }
    return from;
  };
  if (kSpaceBefore) {
    std::size_t size = 0;
    if (text.peek(at, size) == kSpace) {
      const std::size_t end = run(at + size);
      if (end > at + size) {
        return end;
      }
    }
  }
  return run(at);
}

template <bool kSpaceBefore, class IsIn>
void isolate_runs(
    const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends, IsIn is_in) {
  const TextWalk walk(classes, text);
  isolate(walk, at, ends, [&](std::size_t place) {
    return match_run<kSpaceBefore>(walk, place, is_in);
  });
}

using Range = std::pair<char32_t, char32_t>;

bool is_within(char32_t code, std::initializer_list<Range> ranges) {
  for (const auto& [low, high] : ranges) {
    if (code >= low && code <= high) {
      return true;
    }
  }
  return false;
}

// Blocks whose cased letters DeepSeek's list lacks.
bool is_newer_cased(char32_t code) {
  return code >= 0x560 && is_within(code,
                                    {{0x560, 0x588},
                                     {0x10C6, 0x10FF},
                                     {0x1C80, 0x1C8F},
                                     {0x2D00, 0x2D2F},
                                     {0xA78F, 0xA7FF},
                                     {0xAB30, 0xAB6F},
                                     {0x10570, 0x105BF},
                                     {0x10D50, 0x10D8F},
                                     {0x16E40, 0x16EFF},
                                     {0x1D400, 0x1DFFF}});
}

// Falcon's rule is no regular expression and knows the punctuation of an older Unicode.
bool is_falcon_punctuation(char32_t code, CharClass c) {
  if (c != kPunctuation) {
    return code == 0x166D || code == 0x111C9;
  }
  return code < 0x61D || !is_within(code,
                                    {{0x61D, 0x61D},
                                     {0x9FD, 0xA76},
                                     {0xC77, 0xC84},
                                     {0x1B4E, 0x1B4F},
                                     {0x1B7D, 0x1B7F},
                                     {0x2E43, 0x2E5D},
                                     {0x10D6E, 0x10F89},
                                     {0x113D4, 0x1145D},
                                     {0x11660, 0x116B9},
                                     {0x1183B, 0x11FFF},
                                     {0x12FF1, 0x12FF2},
                                     {0x16D6D, 0x16FE2},
                                     {0x1E5FF, 0x1E95F}});
}

bool is_listed_sign(unsigned char c) {
  return std::string_view("$+<=>^~|").find(static_cast<char>(c)) != std::string_view::npos;
}

}  // namespace

void cut_digits(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  const TextWalk walk(classes, text);
  isolate(walk, at, ends, [&](std::size_t place) { return walk.run(place, kNumber, 1); });
}

void cut_number_runs(const CharClasses& classes,
                     std::string_view text,
                     std::size_t at,
                     Ends& ends) {
  const TextWalk walk(classes, text);
  isolate(walk, at, ends, [&](std::size_t place) { return walk.run(place, kNumber); });
}

void cut_three_numbers(const CharClasses& classes,
                       std::string_view text,
                       std::size_t at,
                       Ends& ends) {
  const TextWalk walk(classes, text);
  isolate(walk, at, ends, [&](std::size_t place) { return walk.run(place, kNumber, 3); });
}

void cut_three_digits(const CharClasses& classes,
                      std::string_view text,
                      std::size_t at,
                      Ends& ends) {
  const auto is_digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  isolate(TextWalk(classes, text), at, ends, [&](std::size_t i) {
    return i + 3 <= text.size() && is_digit(i) && is_digit(i + 1) && is_digit(i + 2) ? i + 3 : i;
  });
}

void cut_signs(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  isolate_runs<false>(
      classes, text, at, ends, [](const TextWalk& walk, std::size_t i, CharClass c) {
        return c == kPunctuation || is_listed_sign(walk.byte(i));
      });
}

void cut_falcon_signs(const CharClasses& classes,
                      std::string_view text,
                      std::size_t at,
                      Ends& ends) {
  isolate_runs<false>(
      classes, text, at, ends, [](const TextWalk& walk, std::size_t i, CharClass c) {
        return is_falcon_punctuation(walk.character(i).code, c) || is_listed_sign(walk.byte(i)) ||
               walk.byte(i) == '`';
      });
}

void cut_newlines(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  isolate(TextWalk(classes, text), at, ends, [&](std::size_t i) {
    return text[i] == '\r' || text[i] == '\n' ? i + 1 : i;
  });
}

void cut_end_space(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  const TextWalk walk(classes, text);
  std::size_t begin = at;  // of the spaces at the end
  for (std::size_t i = at; i < text.size();) {
    std::size_t size = 0;
    const bool space = walk.peek(i, size) == kSpace;
    i += size;
    begin = space ? begin : i;
  }
  if (begin > at) {
    ends.push_back(static_cast<std::uint32_t>(begin));
  }
  if (begin < text.size()) {
    ends.push_back(static_cast<std::uint32_t>(text.size()));
  }
}

void cut_letter_runs(const CharClasses& classes,
                     std::string_view text,
                     std::size_t at,
                     Ends& ends) {
  isolate_runs<true>(classes, text, at, ends, [](const TextWalk&, std::size_t, CharClass c) {
    return (c & kLetter) != 0;
  });
}

void cut_punctuation_runs(const CharClasses& classes,
                          std::string_view text,
                          std::size_t at,
                          Ends& ends) {
  isolate_runs<true>(classes, text, at, ends, [](const TextWalk&, std::size_t, CharClass c) {
    return c == kPunctuation;
  });
}

void cut_cased_words(const CharClasses& classes,
                     std::string_view text,
                     std::size_t at,
                     Ends& ends) {
  isolate_runs<true>(classes, text, at, ends, [](const TextWalk& walk, std::size_t i, CharClass c) {
    return (c & (kUpper | kLower)) != 0 &&
           (walk.byte(i) < 0x80 || !is_newer_cased(walk.character(i).code));
  });
}

void cut_wide_signs(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  isolate_runs<true>(classes, text, at, ends, [](const TextWalk& walk, std::size_t i, CharClass) {
    return is_within(walk.character(i).code,
                     {{'!', '/'},
                      {':', '~'},
                      {0xFF01, 0xFF0F},
                      {0xFF1A, 0xFF5E},
                      {0x2018, 0x201F},
                      {0x3000, 0x3002}});
  });
}

void cut_east_asian(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  isolate_runs<false>(classes, text, at, ends, [](const TextWalk& walk, std::size_t i, CharClass) {
    return is_within(walk.character(i).code, {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}});
  });
}

void cut_kana_han(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  isolate_runs<false>(classes, text, at, ends, [](const TextWalk& walk, std::size_t i, CharClass) {
    return is_within(walk.character(i).code, {{0x4E00, 0x9FA5}, {0x3040, 0x30FF}});
  });
}

void cut_bloom(const CharClasses& classes, std::string_view text, std::size_t at, Ends& ends) {
  const TextWalk walk(classes, text);
  const auto run = [&](std::size_t from) {
    while (from < text.size()) {
      std::size_t size = 0;
      const CharClass c = walk.peek(from, size);
      const char32_t code = walk.character(from).code;
      if (c == kSpace ||
          std::u32string_view(U"(|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)").find(code) !=
              std::u32string_view::npos) {
        break;
      }
      from += size;
    }
    return from;
  };
  isolate(walk, at, ends, [&](std::size_t place) {
    const std::size_t start = walk.has(place, ' ') ? place + 1 : place;
    const std::size_t end = run(start);
    return end > start ? end : place;
  });
}

}  // namespace baton::engine
