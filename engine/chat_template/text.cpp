#include "engine/chat_template/text.h"

#include <algorithm>

namespace baton::engine::jinja {

bool Text::any_foreign() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.foreign; });
}

void Text::append(std::string_view bytes, bool foreign) {
  if (bytes.empty()) {
    return;
  }
  // A long text mostly gets a short end behind it: with room for that it is copied once.
  if (const std::size_t needed = bytes_.size() + bytes.size(); needed > bytes_.capacity()) {
    bytes_.reserve(needed + needed / 8);
  }
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().foreign == foreign) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), foreign});
  }
}

void Text::append(const Text& other) {
  if (&other == this) {
    append(Text(other));
    return;
  }
  std::size_t begin = 0;
  for (const Run& run : other.runs_) {
    append(other.view().substr(begin, run.end - begin), run.foreign);
    begin = run.end;
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text out;
  auto run = std::upper_bound(
      runs_.begin(), runs_.end(), begin, [](std::size_t at, const Run& r) { return at < r.end; });
  while (begin < end) {
    const std::size_t stop = std::min(end, run->end);
    out.append(view().substr(begin, stop - begin), run->foreign);
    begin = stop;
    ++run;
  }
  return out;
}

}  // namespace baton::engine::jinja
