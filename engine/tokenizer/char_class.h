// The class of a code point as pre-tokenizers see it (Unicode 16.0 general categories and the
// White_Space property). Classes are bits, so that sets of them are masks.
//
// Thread: const after building. Failure: none; code points above U+10FFFF are Other.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

using CharClass = std::uint8_t;
constexpr CharClass kOtherChar = 0;
constexpr CharClass kUpper = 1;        // Lu, Lt
constexpr CharClass kLower = 2;        // Ll
constexpr CharClass kOtherLetter = 4;  // Lm, Lo
constexpr CharClass kLetter = kUpper | kLower | kOtherLetter;
constexpr CharClass kNumber = 8;
constexpr CharClass kMark = 16;
constexpr CharClass kPunctuation = 32;
constexpr CharClass kSymbol = 64;
constexpr CharClass kSpace = 128;

// First code point times 16 plus the number of its class, ascending; a run reaches to the next.
std::span<const std::uint32_t> char_class_runs();

class CharClasses {
 public:
  CharClasses();
  CharClass of(char32_t code) const {
    return code < 0x110000 ? blocks_[index_[code >> 8]][code & 0xFF] : kOtherChar;
  }
  CharClass of_ascii(unsigned char byte) const { return ascii_[byte]; }

 private:
  using Block = std::array<CharClass, 256>;
  std::array<CharClass, 128> ascii_{};
  std::array<std::uint16_t, 0x1100> index_{};  // block of code >> 8
  std::vector<Block> blocks_;                  // blocks of a single class are shared
};

}  // namespace baton::engine
