// Watches generated text for stop strings, also when one is spread over several tokens: text that
// may be the beginning of a stop string is held back until the next text decides.
//
// Thread: one owner. Failure: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton::gateway {

class StopWatcher {
 public:
  // `keep_match`: the stop string itself is part of the answer.
  StopWatcher(std::vector<std::string> stops, bool keep_match);

  // Appends to `out` what may be shown now. True when a stop string was completed: `out` then ends
  // the answer and nothing may be pushed any more.
  bool push(std::string_view text, std::string& out);
  // The stop string that was completed; empty before.
  const std::string& matched() const { return matched_; }
  // The text held back, when the answer ends for another reason.
  void flush(std::string& out);

 private:
  std::vector<std::string> stops_;  // none empty
  std::size_t longest_ = 0;
  bool keep_match_;
  std::string matched_;
  std::string held_;  // shorter than the longest stop string between calls
};

}  // namespace baton::gateway
