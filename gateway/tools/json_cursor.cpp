#include "gateway/tools/json_cursor.h"

namespace baton::gateway {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

JsonCursor::Progress JsonCursor::push(char c) {
  if (open_.empty()) {
    return c == '{' ? open(c) : Progress::Bad;
  }
  switch (state_) {
    case State::String:
    case State::Escape:
    case State::Unicode:
      return in_string(c);
    case State::Literal:
      if (c != literal_.front()) {
        return Progress::Bad;
      }
      literal_.remove_prefix(1);
      return go(literal_.empty() ? State::After : State::Literal);
    case State::Minus:
    case State::Zero:
    case State::Digits:
    case State::Point:
    case State::Fraction:
    case State::Exponent:
    case State::ExponentSign:
    case State::ExponentDigits:
      return in_number(c);
    default:
      break;
  }
  if (is_space(c)) {
    return Progress::More;
  }
  switch (state_) {
    case State::ValueOrEnd:
      return c == ']' ? close(c) : begin_value(c);
    case State::KeyOrEnd:
      if (c == '}') {
        return close(c);
      }
      [[fallthrough]];
    case State::Key:
      is_key_ = true;
      return c == '"' ? go(State::String) : Progress::Bad;
    case State::Colon:
      return c == ':' ? go(State::Value) : Progress::Bad;
    case State::After:
      return after_value(c);
    default:
      return begin_value(c);
  }
}

JsonCursor::Progress JsonCursor::begin_value(char c) {
  switch (c) {
    case '{':
    case '[':
      return open(c);
    case '"':
      is_key_ = false;
      return go(State::String);
    case 't':
      literal_ = "rue";
      return go(State::Literal);
    case 'f':
      literal_ = "alse";
      return go(State::Literal);
    case 'n':
      literal_ = "ull";
      return go(State::Literal);
    case '-':
      return go(State::Minus);
    case '0':
      return go(State::Zero);
    default:
      return is_digit(c) ? go(State::Digits) : Progress::Bad;
  }
}

JsonCursor::Progress JsonCursor::in_string(char c) {
  if (state_ == State::Escape) {
    if (c == 'u') {
      hex_left_ = 4;
      return go(State::Unicode);
    }
    const bool known = std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos;
    return known ? go(State::String) : Progress::Bad;
  }
  if (state_ == State::Unicode) {
    if (!is_hex(c)) {
      return Progress::Bad;
    }
    return go(--hex_left_ == 0 ? State::String : State::Unicode);
  }
  if (c == '"') {
    return go(is_key_ ? State::Colon : State::After);
  }
  if (c == '\\') {
    return go(State::Escape);
  }
  return static_cast<unsigned char>(c) < 0x20 ? Progress::Bad : Progress::More;
}

JsonCursor::Progress JsonCursor::in_number(char c) {
  const bool exponent = c == 'e' || c == 'E';
  switch (state_) {
    case State::Minus:
      return c == '0' ? go(State::Zero) : is_digit(c) ? go(State::Digits) : Progress::Bad;
    case State::Point:
      return is_digit(c) ? go(State::Fraction) : Progress::Bad;
    case State::Exponent:
      if (c == '+' || c == '-') {
        return go(State::ExponentSign);
      }
      [[fallthrough]];
    case State::ExponentSign:
      return is_digit(c) ? go(State::ExponentDigits) : Progress::Bad;
    case State::Zero:
    case State::Digits:
      if (c == '.') {
        return go(State::Point);
      }
      if (is_digit(c)) {
        return state_ == State::Digits ? Progress::More : Progress::Bad;
      }
      return exponent ? go(State::Exponent) : after_value(c);
    case State::Fraction:
      return is_digit(c) ? Progress::More : exponent ? go(State::Exponent) : after_value(c);
    default:
      return is_digit(c) ? Progress::More : after_value(c);
  }
}

JsonCursor::Progress JsonCursor::after_value(char c) {
  state_ = State::After;
  if (is_space(c)) {
    return Progress::More;
  }
  if (c == ',') {
    return go(open_.back() == '{' ? State::Key : State::Value);
  }
  return close(c);
}

JsonCursor::Progress JsonCursor::open(char c) {
  if (open_.size() == kMaxDepth) {
    return Progress::Bad;
  }
  open_.push_back(c);
  return go(c == '{' ? State::KeyOrEnd : State::ValueOrEnd);
}

JsonCursor::Progress JsonCursor::close(char c) {
  if (c != (open_.back() == '{' ? '}' : ']')) {
    return Progress::Bad;
  }
  open_.pop_back();
  state_ = State::After;
  return open_.empty() ? Progress::Done : Progress::More;
}

}  // namespace baton::gateway
