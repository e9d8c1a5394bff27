#include "gateway/openai/stop_watcher.h"

#include <algorithm>
#include <utility>

namespace baton::gateway {

StopWatcher::StopWatcher(std::vector<std::string> stops, bool keep_match)
    : stops_(std::move(stops)), keep_match_(keep_match) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
  for (const std::string& stop : stops_) {
    longest_ = std::max(longest_, stop.size());
  }
}

bool StopWatcher::push(std::string_view text, std::string& out) {
  if (stops_.empty()) {
    out += text;
    return false;
  }
  held_ += text;
  // The match that begins first wins; of two that begin together, the first in the list.
  std::size_t where = std::string::npos;
  const std::string* match = nullptr;
  for (const std::string& stop : stops_) {
    const std::size_t found = held_.find(stop);
    if (found < where) {
      where = found;
      match = &stop;
    }
  }
  if (match != nullptr) {
    out.append(held_, 0, where + (keep_match_ ? match->size() : 0));
    matched_ = *match;
    held_.clear();
    return true;
  }
  std::size_t keep = std::min(longest_ - 1, held_.size());
  const auto may_begin_here = [&](std::size_t tail) {
    return std::any_of(stops_.begin(), stops_.end(), [&](const std::string& stop) {
      return tail < stop.size() && held_.compare(held_.size() - tail, tail, stop, 0, tail) == 0;
    });
  };
  while (keep > 0 && !may_begin_here(keep)) {
    --keep;
  }
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopWatcher::flush(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace baton::gateway
