#include "gateway/http/json_fault.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <vector>

namespace baton::gateway {
namespace {

// Length of the UTF-8 sequence at `at`, 0 when it is broken.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) {
    return 1;
  }
  std::size_t length = 0;
  std::uint32_t value = 0;
  std::uint32_t least = 0;
  if ((lead & 0xe0) == 0xc0) {
    length = 2, value = lead & 0x1fU, least = 0x80;
  } else if ((lead & 0xf0) == 0xe0) {
    length = 3, value = lead & 0x0fU, least = 0x800;
  } else if ((lead & 0xf8) == 0xf0) {
    length = 4, value = lead & 0x07U, least = 0x10000;
  } else {
    return 0;
  }
  if (at + length > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) {
      return 0;
    }
    value = (value << 6) | (byte(at + i) & 0x3fU);
  }
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  return value < least || value > 0x10ffff || surrogate ? 0 : length;
}

// One pass over the text with an explicit stack of open brackets.
class FaultFinder {
 public:
  FaultFinder(std::string_view text, std::size_t max_depth) : text_(text), max_depth_(max_depth) {}

  std::optional<JsonFault> run() {
    value();
    while (!fault_ && !open_.empty()) {
      after_value();
    }
    space();
    if (!fault_ && at_ < text_.size()) {
      fail("unexpected text after the JSON value");
    }
    return std::move(fault_);
  }

 private:
  void fail(std::string what) { fail_at(at_, std::move(what)); }
  void fail_at(std::size_t offset, std::string what) {
    if (!fault_) {
      fault_ = JsonFault{offset, std::move(what)};
    }
  }
  bool end() const { return at_ >= text_.size(); }
  char peek() const { return end() ? '\0' : text_[at_]; }
  bool digit() const { return !end() && text_[at_] >= '0' && text_[at_] <= '9'; }
  void space() {
    while (!end() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) {
      ++at_;
    }
  }

  // A scalar, or the opening of a container up to its first value.
  void value() {
    while (!fault_) {
      space();
      if (end()) {
        return fail("unexpected end of the text, expected a value");
      }
      const char c = peek();
      if (c == '{' || c == '[') {
        if (open_.size() >= max_depth_) {
          return fail(fmt::format("nesting deeper than {} levels", max_depth_));
        }
        open_.push_back(c);
        ++at_;
        space();
        if (peek() == (c == '{' ? '}' : ']') && !end()) {
          open_.pop_back();
          ++at_;
          return;
        }
        if (c == '{') {
          key();
        }
        continue;
      }
      return c == '"' ? string() : (c == '-' || digit()) ? number() : word();
    }
  }
  void after_value() {
    space();
    if (end()) {
      return fail("unexpected end of the text, a bracket is not closed");
    }
    const char close = open_.back() == '{' ? '}' : ']';
    if (peek() == close) {
      ++at_;
      open_.pop_back();
    } else if (peek() == ',') {
      ++at_;
      if (close == '}') {
        space();
        key();
      }
      if (!fault_) {
        value();
      }
    } else {
      fail(fmt::format("expected ',' or '{}'", close));
    }
  }
  void key() {
    if (peek() != '"') {
      return fail("expected a name in double quotes");
    }
    string();
    space();
    if (!fault_ && peek() != ':') {
      return fail("expected ':'");
    }
    ++at_;
  }
  void word() {
    for (const std::string_view name : {"true", "false", "null"}) {
      if (text_.substr(at_, name.size()) == name) {
        at_ += name.size();
        return;
      }
    }
    fail("expected a value");
  }
  void number() {
    const std::size_t begin = at_;
    bool integer = true;
    bool tiny = false;
    at_ += peek() == '-' ? 1 : 0;
    if (!digit()) {
      return fail("expected a digit");
    }
    const bool zero = peek() == '0';
    ++at_;
    if (zero && digit()) {
      return fail("a number has a leading zero");
    }
    digits();
    if (peek() == '.') {
      integer = false;
      ++at_;
      if (!digit()) {
        return fail("expected a digit after '.'");
      }
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      integer = false;
      ++at_;
      tiny = peek() == '-';
      at_ += peek() == '+' || peek() == '-' ? 1 : 0;
      if (!digit()) {
        return fail("expected a digit in the exponent");
      }
      digits();
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + at_;
    double real = 0;
    std::int64_t negative = 0;
    std::uint64_t positive = 0;
    const std::errc fault = !integer        ? std::from_chars(first, last, real).ec
                            : *first == '-' ? std::from_chars(first, last, negative).ec
                                            : std::from_chars(first, last, positive).ec;
    // An underflow to zero is no fault of the text.
    if (fault != std::errc{} && !tiny) {
      fail_at(begin, "a number is out of range");
    }
  }
  void digits() {
    while (digit()) {
      ++at_;
    }
  }
  void string() {
    const std::size_t begin = at_++;
    while (!end()) {
      const char c = peek();
      if (c == '"') {
        ++at_;
        return;
      }
      if (static_cast<unsigned char>(c) < 0x20) {
        return fail("a control character inside a string must be escaped");
      }
      if (c == '\\') {
        escape();
        if (fault_) {
          return;
        }
        continue;
      }
      const std::size_t length = utf8_length(text_, at_);
      if (length == 0) {
        return fail("the text is not valid UTF-8");
      }
      at_ += length;
    }
    fail_at(begin, "a string is not closed");
  }
  void escape() {
    const std::size_t begin = at_++;
    const char c = peek();
    if (c == 'u') {
      ++at_;
      const int high = hex4();
      if (high >= 0xd800 && high <= 0xdbff) {
        const bool more = text_.substr(at_, 2) == "\\u";
        at_ += more ? 2 : 0;
        const int low = more ? hex4() : -1;
        if (low < 0xdc00 || low > 0xdfff) {
          return fail_at(begin, "a \\u escape is half of a surrogate pair");
        }
        return;
      }
      if (high < 0 || (high >= 0xdc00 && high <= 0xdfff)) {
        fail_at(begin, "a \\u escape is broken");
      }
      return;
    }
    if (end() || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) {
      return fail_at(begin, "an unknown escape inside a string");
    }
    ++at_;
  }
  int hex4() {
    int value = -1;
    if (at_ + 4 > text_.size()) {
      return -1;
    }
    const char* first = text_.data() + at_;
    const auto result = std::from_chars(first, first + 4, value, 16);
    if (result.ptr != first + 4 || value < 0) {
      return -1;
    }
    at_ += 4;
    return value;
  }

  std::string_view text_;
  std::size_t max_depth_;
  std::size_t at_ = 0;
  std::vector<char> open_;  // brackets not yet closed
  std::optional<JsonFault> fault_;
};

}  // namespace

std::optional<JsonFault> find_json_fault(std::string_view text, std::size_t max_depth) {
  return FaultFinder(text, max_depth).run();
}

}  // namespace baton::gateway
