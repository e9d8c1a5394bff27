// Normalization form C, which some families apply to text before anything else; with the classes
// and decompositions of Unicode 9.0, as in the `tokenizers` package. Source: Unicode Standard
// Annex 15.
//
// Thread: const after building. Failure: none. REQUIRES: valid UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::engine {

// First code point times 512 plus the combining class (plus 256 when the character may not stand in
// normalized text as it is), ascending; a run reaches to the next.
std::span<const std::uint32_t> nfc_class_runs();

// What a character is made of, ascending by code; `second` may be 0. Hangul is arithmetic instead.
struct Decomposition {
  char32_t code, first, second;
  bool composes;  // the two make the one again
};
std::span<const Decomposition> decompositions();

class Nfc {
 public:
  Nfc();
  // True for text that normalizing would surely not change.
  bool is_normalized(std::string_view text) const;
  // n log n in time, also for endless runs of marks.
  std::string normalize(std::string_view text) const;

 private:
  struct Char {
    char32_t code;
    std::uint32_t combining;
  };
  std::uint32_t class_of(char32_t code) const;
  void decompose(char32_t code, std::vector<Char>& out) const;
  // The character that two make, or 0.
  char32_t compose(char32_t first, char32_t second) const;

  std::array<bool, 0x1100> plain_{};  // no character of this block of 256 has a class
  std::vector<std::pair<std::uint64_t, char32_t>> pairs_;  // ascending by first and second
};

}  // namespace baton::engine
