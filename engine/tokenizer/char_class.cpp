#include "engine/tokenizer/char_class.h"

#include <algorithm>

namespace baton::engine {
namespace {

// In the order of the table's numbers.
constexpr CharClass kClasses[] = {
    kOtherChar, kUpper, kLower, kOtherLetter, kNumber, kMark, kPunctuation, kSymbol, kSpace};

}  // namespace

CharClasses::CharClasses() {
  for (const CharClass c : kClasses) {
    blocks_.emplace_back();
    blocks_.back().fill(c);
  }
  const auto runs = char_class_runs();
  std::size_t run = 0;
  for (std::uint32_t high = 0; high < index_.size(); ++high) {
    Block block{};
    for (std::uint32_t low = 0; low < block.size(); ++low) {
      const std::uint32_t code = (high << 8) | low;
      while (run + 1 < runs.size() && (runs[run + 1] >> 4) <= code) {
        ++run;
      }
      block[low] = kClasses[runs[run] & 15];
    }
    if (std::count(block.begin(), block.end(), block[0]) == 256) {
      const auto* shared = std::find(std::begin(kClasses), std::end(kClasses), block[0]);
      index_[high] = static_cast<std::uint16_t>(shared - std::begin(kClasses));
    } else {
      index_[high] = static_cast<std::uint16_t>(blocks_.size());
      blocks_.push_back(block);
    }
  }
  std::copy_n(blocks_[index_[0]].begin(), ascii_.size(), ascii_.begin());
}

}  // namespace baton::engine
