// Numbers as text behind a text, for what is written for every request or token: reading a format
// anew each time costs more than the digits.
//
// Thread: plain functions. Failure: none.
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>

namespace baton {

void append_number(std::string& out, std::integral auto value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

// 16 digits, the first ones zero where need be.
inline void append_hex(std::string& out, std::uint64_t value) {
  constexpr int kDigits = 16;
  for (int shift = 4 * (kDigits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(value >> static_cast<unsigned>(shift)) & 15U];
  }
}

}  // namespace baton
