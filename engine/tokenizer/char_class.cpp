#include "engine/tokenizer/char_class.h"

#include <algorithm>

namespace baton::engine {

CharClasses::CharClasses() {
  constexpr std::size_t kClasses = 7;
  for (std::size_t c = 0; c < kClasses; ++c) {
    blocks_.emplace_back();
    blocks_.back().fill(static_cast<CharClass>(c));
  }
  const auto runs = char_class_runs();
  std::size_t run = 0;
  for (std::uint32_t high = 0; high < index_.size(); ++high) {
    Block block{};
    for (std::uint32_t low = 0; low < block.size(); ++low) {
      const std::uint32_t code = (high << 8) | low;
      while (run + 1 < runs.size() && (runs[run + 1] >> 3) <= code) {
        ++run;
      }
      block[low] = static_cast<CharClass>(runs[run] & 7);
    }
    const bool uniform =
        std::all_of(block.begin(), block.end(), [&](CharClass c) { return c == block.front(); });
    if (uniform) {
      index_[high] = static_cast<std::uint16_t>(block.front());
    } else {
      index_[high] = static_cast<std::uint16_t>(blocks_.size());
      blocks_.push_back(block);
    }
  }
}

}  // namespace baton::engine
