#include "engine/grammar/text_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace baton::engine {
namespace {

// Saturates: sizes are compared with limits far below.
constexpr std::size_t kHuge = std::size_t{1} << 40;

std::size_t times(std::size_t a, std::size_t b) {
  return a != 0 && b > kHuge / a ? kHuge : a * b;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// A repetition `{m}`, `{m,}` or `{m,n}` at `at`: its end and how often it writes out what stands
// before it. No repetition: an end of 0.
struct Repetition {
  std::size_t end = 0;
  std::size_t least = 0;
  std::size_t count = 1;
};

Repetition read_repetition(std::string_view text, std::size_t at) {
  std::size_t next = at + 1;
  const auto number = [&] {
    std::size_t value = 0;
    for (; next < text.size() && is_digit(text[next]); ++next) {
      value = std::min(kHuge, value * 10 + static_cast<std::size_t>(text[next] - '0'));
    }
    return value;
  };
  if (next >= text.size() || !is_digit(text[next])) {
    return {};
  }
  const std::size_t least = number();
  std::size_t most = least;
  if (next < text.size() && text[next] == ',') {
    ++next;
    most = next < text.size() && is_digit(text[next]) ? number() : least + 1;
  }
  if (next >= text.size() || text[next] != '}') {
    return {};
  }
  return {.end = next + 1, .least = least, .count = std::max<std::size_t>({1, least, most})};
}

// Behind the character class that begins at `at`; the text's end when it does not end.
std::size_t end_of_class(std::string_view text, std::size_t at) {
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == ']' && i > at + 1) {
      return i + 1;
    }
  }
  return text.size();
}

// What an expression is when its repetitions are written out.
struct Size {
  std::size_t characters = 0;
  std::size_t optional = 0;  // parts that may be left out

  void add(const Size& other) {
    characters = std::min(kHuge, characters + other.characters);
    optional = std::min(kHuge, optional + other.optional);
  }
};

// Sizes of the groups that are open, the outermost first, and of the atom before the cursor.
class Expansion {
 public:
  bool open() {
    flush();
    open_.push_back({});
    return open_.size() <= TextLimits::kNesting;
  }
  void close() {
    flush();
    if (open_.size() > 1) {
      last_ = open_.back();
      is_group_ = true;
      last_.characters = std::max<std::size_t>(1, last_.characters);
      open_.pop_back();
    }
  }
  void atom(std::size_t characters) {
    flush();
    last_ = {.characters = characters};
    is_group_ = false;
  }
  void repeat(const Repetition& repetition) {
    last_.characters = times(last_.characters, repetition.count);
    last_.optional = times(last_.optional, repetition.count);
    if (is_group_) {  // a repeated character is known by its count
      last_.optional += repetition.count - std::min(repetition.count, repetition.least);
    }
  }
  void make_optional() { last_.optional += 1; }
  Size total() {
    flush();
    Size sum;
    for (const Size& size : open_) {
      sum.add(size);
    }
    return sum;
  }

 private:
  void flush() {
    open_.back().add(last_);
    last_ = {};
  }

  std::vector<Size> open_{{}};
  Size last_;
  bool is_group_ = false;  // last_
};

std::unexpected<Error> too_deep(std::string_view where) {
  return fail(ErrorCode::InvalidArgument,
              fmt::format("{} has parentheses more than {} deep; the limit is {}",
                          where,
                          TextLimits::kNesting,
                          TextLimits::kNesting));
}

// Of a class that holds most characters.
constexpr std::size_t kWide = 5;

Result<std::size_t> check_expanded(std::size_t size, std::size_t limit, std::string_view where) {
  if (size > limit) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} is too large: with its repetitions written out it has more than {} "
                            "characters and classes",
                            where,
                            limit));
  }
  return size;
}

}  // namespace

Result<std::size_t> check_regex(std::string_view regex, std::size_t limit, std::string_view where) {
  if (regex.size() > TextLimits::kRegexBytes) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format(
            "{} has {} bytes; the limit is {}", where, regex.size(), TextLimits::kRegexBytes));
  }
  Expansion expansion;
  for (std::size_t i = 0; i < regex.size();) {
    const char c = regex[i];
    if (c == '\\') {
      const bool is_wide =
          i + 1 < regex.size() && std::string_view("DSWp").find(regex[i + 1]) != std::string::npos;
      expansion.atom(is_wide ? kWide : 1);
      i += 2;
    } else if (c == '[') {
      expansion.atom(regex.substr(i).starts_with("[^") ? kWide : 1);
      i = end_of_class(regex, i);
    } else if (c == '(') {
      if (!expansion.open()) {
        return too_deep(where);
      }
      ++i;
    } else if (c == ')') {
      expansion.close();
      ++i;
    } else if (const Repetition repetition = c == '{' ? read_repetition(regex, i) : Repetition{};
               repetition.end > 0) {
      expansion.repeat(repetition);
      i = repetition.end;
    } else {
      if (c == '*' || c == '?') {
        expansion.make_optional();
      } else if (c != '+' && c != '|') {
        expansion.atom(c == '.' ? kWide : 1);
      }
      ++i;
    }
  }
  const Size size = expansion.total();
  BATON_TRY(check_expanded(size.characters, limit, where));
  if (size.optional > TextLimits::kOptional) {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("{} has more than {} optional parts, repetitions written out",
                            where,
                            TextLimits::kOptional));
  }
  return size.characters;
}

Status check_rules(std::string_view rules) {
  constexpr std::string_view kWhere = "the grammar";
  if (rules.size() > TextLimits::kRulesBytes) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format(
            "{} has {} bytes; the limit is {}", kWhere, rules.size(), TextLimits::kRulesBytes));
  }
  Expansion expansion;
  for (std::size_t i = 0; i < rules.size();) {
    const char c = rules[i];
    if (c == '"') {
      std::size_t end = i + 1;
      while (end < rules.size() && rules[end] != '"' && rules[end] != '\n') {
        end += rules[end] == '\\' ? 2 : 1;
      }
      expansion.atom(std::max<std::size_t>(1, std::min(end, rules.size()) - i - 1));
      i = end + 1;
    } else if (c == '#') {
      i = std::min(rules.size(), rules.find('\n', i));
    } else if (c == '[') {
      expansion.atom(1);
      i = end_of_class(rules, i);
    } else if (c == '(') {
      if (!expansion.open()) {
        return too_deep(kWhere);
      }
      ++i;
    } else if (c == ')') {
      expansion.close();
      ++i;
    } else if (const Repetition repetition = c == '{' ? read_repetition(rules, i) : Repetition{};
               repetition.end > 0) {
      expansion.repeat(repetition);
      i = repetition.end;
    } else {
      // A name counts once for each character, which is more than it is.
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
        expansion.atom(1);
      }
      ++i;
    }
  }
  BATON_TRY(check_expanded(expansion.total().characters, TextLimits::kRulesExpanded, kWhere));
  return {};
}

}  // namespace baton::engine
