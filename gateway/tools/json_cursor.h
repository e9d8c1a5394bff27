// Follows one JSON object byte by byte and tells where it ends or breaks (RFC 8259, bytes of
// strings are not checked for UTF-8).
//
// Thread: one owner. Failure: Bad, for good, at the first byte that no JSON object can have there.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace baton::gateway {

class JsonCursor {
 public:
  enum class Progress : std::uint8_t { More, Done, Bad };

  // The first byte is the object's '{'. Nothing may follow Done or Bad.
  Progress push(char c);

 private:
  enum class State : std::uint8_t {
    Value,
    ValueOrEnd,  // after '['
    KeyOrEnd,    // after '{'
    Key,
    Colon,
    After,  // of a value
    String,
    Escape,
    Unicode,
    Literal,
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits
  };

  static constexpr std::size_t kMaxDepth = 64;  // as in request bodies

  Progress begin_value(char c);
  Progress in_string(char c);
  Progress in_number(char c);
  Progress after_value(char c);
  Progress open(char c);
  Progress close(char c);
  Progress go(State state) {
    state_ = state;
    return Progress::More;
  }

  State state_ = State::Value;
  std::vector<char> open_;  // '{' and '[' that are not closed yet
  bool is_key_ = false;     // of the string that is being read
  std::uint8_t hex_left_ = 0;
  std::string_view literal_;  // what of true, false or null is still to come
};

}  // namespace baton::gateway
