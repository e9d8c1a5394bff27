// A string of which each byte knows whether it came from a request ("foreign") or from the
// template. Foreign bytes can never become a special token, whatever a template does to them:
// joining and slicing keep the mark of each byte, and everything that rewrites text marks all of
// its result when any part of its input was foreign.
//
// Thread: plain values. Failure: none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton::engine::jinja {

class Text {
 public:
  struct Run {
    std::size_t end = 0;  // bytes before this, from the run before on
    bool foreign = false;
  };

  Text() = default;
  Text(std::string bytes, bool foreign) : bytes_(std::move(bytes)) {
    if (!bytes_.empty()) {
      runs_.push_back({bytes_.size(), foreign});
    }
  }

  const std::string& str() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool any_foreign() const;
  const std::vector<Run>& runs() const { return runs_; }

  void append(const Text& other);
  void append(std::string_view bytes, bool foreign);
  // Bytes [begin, end). REQUIRES: begin <= end <= size().
  Text slice(std::size_t begin, std::size_t end) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;  // neighbours differ in `foreign`; the last ends at bytes_.size()
};

}  // namespace baton::engine::jinja
