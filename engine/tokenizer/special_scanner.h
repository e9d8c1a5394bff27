// Finds the tokens that stand in text as themselves: control tokens, where the text may hold them,
// and user-defined tokens, everywhere. At each place the longest wins.
//
// Thread: const after building. Failure: none.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"

namespace baton::engine {

// A byte range of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

class SpecialScanner {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId id = -1;  // -1: nothing more in the text
  };

  SpecialScanner();
  // `anywhere`: also where special tokens are not allowed. REQUIRES: text is not empty.
  void add(std::string_view text, TokenId id, bool anywhere);
  // The first match at or after `from`. `allowed` lists where control tokens may stand, ascending
  // and apart from each other; a control token must lie wholly inside one range.
  Match find(std::string_view text, std::size_t from, std::span<const TextRange> allowed) const;

 private:
  struct Node {
    std::uint32_t first_child = 0;  // 0: none
    std::uint32_t next_sibling = 0;
    TokenId id = -1;
    bool anywhere = false;
    unsigned char byte = 0;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;
  // The first place at or after `from` where one of the texts may begin, or the end.
  std::size_t next_start(std::string_view text, std::size_t from) const;

  std::array<std::uint32_t, 256> roots_{};
  std::string first_bytes_;  // of the texts, each once
  std::vector<Node> nodes_;  // a trie; node 0 is unused
};

}  // namespace baton::engine
