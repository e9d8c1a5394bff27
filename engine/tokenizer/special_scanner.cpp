#include "engine/tokenizer/special_scanner.h"

#include <algorithm>

namespace baton::engine {

SpecialScanner::SpecialScanner() {
  nodes_.emplace_back();
}

std::uint32_t SpecialScanner::child(std::uint32_t node, unsigned char byte) const {
  std::uint32_t at = nodes_[node].first_child;
  while (at != 0 && nodes_[at].byte != byte) {
    at = nodes_[at].next_sibling;
  }
  return at;
}

void SpecialScanner::add(std::string_view text, TokenId id, bool anywhere) {
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::uint32_t next = i == 0 ? roots_[byte] : child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({0, i == 0 ? 0 : nodes_[node].first_child, -1, false, byte});
      (i == 0 ? roots_[byte] : nodes_[node].first_child) = next;
      if (i == 0) {
        first_bytes_ += text[0];
      }
    }
    node = next;
  }
  nodes_[node].id = id;
  nodes_[node].anywhere = anywhere;
}

std::size_t SpecialScanner::next_start(std::string_view text, std::size_t from) const {
  // Most models' texts all begin with '<'.
  if (first_bytes_.size() == 1) {
    return std::min(text.find(first_bytes_.front(), from), text.size());
  }
  while (from < text.size() && roots_[static_cast<unsigned char>(text[from])] == 0) {
    ++from;
  }
  return from;
}

SpecialScanner::Match SpecialScanner::find(std::string_view text,
                                           std::size_t from,
                                           std::span<const TextRange> allowed) const {
  std::size_t range = 0;
  for (std::size_t at = next_start(text, from); at < text.size(); at = next_start(text, at + 1)) {
    std::uint32_t node = roots_[static_cast<unsigned char>(text[at])];
    while (range < allowed.size() && allowed[range].end <= at) {
      ++range;
    }
    // Control tokens starting here must end by this place.
    const std::size_t limit =
        range < allowed.size() && allowed[range].begin <= at ? allowed[range].end : 0;
    Match best;
    for (std::size_t end = at + 1; node != 0; ++end) {
      const Node& here = nodes_[node];
      if (here.id >= 0 && (here.anywhere || end <= limit)) {
        best = {at, end, here.id};
      }
      if (end == text.size()) {
        break;
      }
      node = child(node, static_cast<unsigned char>(text[end]));
    }
    if (best.id >= 0) {
      return best;
    }
  }
  return {};
}

}  // namespace baton::engine
