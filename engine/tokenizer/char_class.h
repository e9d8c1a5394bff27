// The class of a code point as pre-tokenizers see it: letter, number, mark, punctuation, symbol,
// white space or none of these (Unicode 16.0 general categories and the White_Space property).
//
// Thread: const after building. Failure: none; code points above U+10FFFF are Other.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace baton::engine {

enum class CharClass : std::uint8_t { Other, Letter, Number, Mark, Punctuation, Symbol, Space };

// First code point times 8 plus class, ascending; a run reaches to the next entry.
std::span<const std::uint32_t> char_class_runs();

class CharClasses {
 public:
  CharClasses();
  CharClass of(char32_t code) const {
    return code < 0x110000 ? blocks_[index_[code >> 8]][code & 0xFF] : CharClass::Other;
  }

 private:
  using Block = std::array<CharClass, 256>;
  std::array<std::uint16_t, 0x1100> index_{};  // block of code >> 8
  std::vector<Block> blocks_;                  // blocks of a single class are shared
};

}  // namespace baton::engine
